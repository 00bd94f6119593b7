//! Submits the requests of calls and groups to the engines of their communicators.

use super::{
    COMMUNICATORS, Communicator, Engine, TIMEOUT,
    division::Division,
    group::Item,
    in_process_group::{self, InProcessRank, Outcome, Request},
    nccl::{self, IssueError},
    nccl_division, nccl_end,
    operation::Operation,
    shared,
};
use crate::{
    base::log,
    error::{Error, Result, invalid},
    runtime::{self, Runtime},
    status::Status,
};
use std::{sync::Arc, time::Duration};

/// Why a communicator has ended that a shrink has aborted.
const SHRUNK: &str = "a shrink ended it";

/// Submits a request that is not in a group.
pub(super) fn execute_alone(item: Item) -> Result<()> {
    let Item { communicator, request, .. } = &item;
    let (Engine::Shared(process_rank), Request::Operation(operation)) = (&communicator.engine, request) else {
        return execute(vec![item]);
    };
    execute_operations(communicator, process_rank, std::slice::from_ref(operation))
}

/// Submits operations of one rank.
fn execute_operations(
    communicator: &Communicator,
    process_rank: &shared::ProcessRank,
    operations: &[Operation],
) -> Result<()> {
    let runtime = runtime::ready()?;
    communicator.check()?;
    issue_shared(runtime, communicator, process_rank, operations, communicator.timeout())
}

/// Submits requests to the engines, and waits until all of them are in the streams.
pub(super) fn execute(items: Vec<Item>) -> Result<()> {
    let Some(first) = items.first() else { return Ok(()) };
    // What most groups are, without the lists that the others need.
    if let Engine::Shared(process_rank) = &first.communicator.engine {
        let operation_of_first = |item: &Item| match item.request {
            Request::Operation(operation) => Arc::ptr_eq(&item.communicator, &first.communicator).then_some(operation),
            Request::Division(_) => None,
        };
        if let Some(operations) = items.iter().map(operation_of_first).collect::<Option<Vec<Operation>>>() {
            return execute_operations(&first.communicator, process_rank, &operations);
        }
    }
    let runtime = runtime::ready()?;
    end_before_shrinks(&items)?;
    let limit = items.iter().map(|item| item.communicator.timeout()).min().unwrap_or(TIMEOUT);
    let (mut in_process, mut shared, mut nccl) = (Vec::new(), Vec::new(), Vec::new());
    for item in items {
        match &item.communicator.engine {
            Engine::InProcess(_) => in_process.push(item),
            Engine::Shared(_) => shared.push(item),
            Engine::Nccl(_) => nccl.push(item),
        }
    }
    // An error of one engine must not leave the ranks of another waiting.
    let by_nccl = execute_with_nccl(runtime, nccl, limit);
    let by_shared = execute_shared(runtime, shared, limit);
    let by_team = execute_in_process(runtime, in_process, limit);
    by_nccl.and(by_shared).and(by_team)
}

/// Checks the communicators, and aborts those whose shrink asks for it. NCCL's shrink ends their work by itself.
fn end_before_shrinks(items: &[Item]) -> Result<()> {
    let (aborting, others): (Vec<&Item>, Vec<&Item>) = items.iter().partition(|item| item.request.aborts());
    for item in others {
        item.communicator.check()?;
        if aborting.iter().any(|shrink| shrink.communicator.is_aborted_with(&item.communicator)) {
            return Err(invalid(
                "a group has a shrink that aborts a communicator, and another call of that communicator",
            ));
        }
    }
    for Item { communicator, .. } in aborting {
        if !matches!(communicator.engine, Engine::Nccl(_)) {
            log::ignore(communicator.abort_with_reason(SHRUNK), "aborting a communicator before its shrink");
        }
    }
    Ok(())
}

fn execute_shared(runtime: &Runtime, items: Vec<Item>, limit: Duration) -> Result<()> {
    let mut issued = Ok(());
    let mut divisions = Vec::new();
    let mut rest = items;
    while let Some(communicator) = rest.first().map(|item| item.communicator.clone()) {
        let Engine::Shared(process_rank) = &communicator.engine else { break };
        let (now, later): (Vec<Item>, Vec<Item>) =
            rest.into_iter().partition(|item| Arc::ptr_eq(&item.communicator, &communicator));
        rest = later;
        let mut operations = Vec::new();
        for item in now {
            match item.request {
                Request::Operation(operation) => operations.push(operation),
                Request::Division(_) => divisions.push(item),
            }
        }
        issued = issued.and(issue_shared(runtime, &communicator, process_rank, &operations, limit));
    }
    issued?;
    let requests: Vec<(&shared::ProcessRank, &Division)> = divisions
        .iter()
        .filter_map(|item| match (&item.communicator.engine, &item.request) {
            (Engine::Shared(process_rank), Request::Division(division)) => Some((&**process_rank, division)),
            _ => None,
        })
        .collect();
    let parts = shared::divide(&requests, limit)?;
    for (item, part) in divisions.into_iter().zip(parts) {
        let part =
            part.map(|shared::Part { process_rank, rank, size }| (rank, size, Engine::Shared(Box::new(process_rank))));
        deliver(item, part)?;
    }
    Ok(())
}

/// Delivers the new communicator of a division, with its rank, its size and its engine.
fn deliver(item: Item, part: Option<(u32, u32, Engine)>) -> Result<()> {
    let (device, timeout) = (item.communicator.device, item.communicator.timeout());
    let part = part.map_or(Ok(0), |(rank, size, engine)| {
        COMMUNICATORS.insert(Communicator::new(rank, size, device, engine, timeout))
    })?;
    if let Some(deliver) = item.deliver {
        deliver(part);
    }
    Ok(())
}

/// Issues the operations of a rank in a group call. Collectives are issued one by one, with NCCL or without, so that
/// the stream has them in the order of the calls; NCCL does not keep that order within one of its groups.
/// Point-to-point operations have no order that all ranks know, so they are issued last, in two batches, which are the
/// same at all ranks.
fn issue_shared(
    runtime: &Runtime,
    communicator: &Communicator,
    process_rank: &shared::ProcessRank,
    operations: &[Operation],
    limit: Duration,
) -> Result<()> {
    let by_nccl = |batch: &[(&Arc<nccl::NcclRank>, &Operation)]| {
        process_rank.check_awake()?;
        nccl::issue(runtime, batch, limit).map_err(|issued| communicator.error_of(issued))
    };
    let (mut large, mut small) = (Vec::new(), Vec::new());
    for operation in operations {
        match (process_rank.nccl_for(operation), operation.kind.is_point_to_point()) {
            (Some(rank), false) => by_nccl(&[(rank, operation)])?,
            (None, false) => process_rank.issue_collective(operation)?,
            (Some(rank), true) => large.push((rank, operation)),
            (None, true) => small.extend(shared::transfer(operation)),
        }
    }
    if !large.is_empty() {
        by_nccl(&large)?;
    }
    process_rank.issue_transfers(&small)
}

fn execute_in_process(runtime: &Runtime, items: Vec<Item>, limit: Duration) -> Result<()> {
    let rank_handle = |item: &Item| match &item.communicator.engine {
        Engine::InProcess(rank_handle) => Some((rank_handle.clone(), item.request.clone())),
        _ => None,
    };
    let batch: Vec<(InProcessRank, Request)> = items.iter().filter_map(rank_handle).collect();
    for (item, outcome) in items.into_iter().zip(in_process_group::submit(runtime, &batch, limit)?) {
        if let Outcome::NewGroup(part) = outcome {
            let engine = |rank: InProcessRank| (rank.rank(), rank.size(), Engine::InProcess(rank));
            deliver(item, part.map(engine))?;
        }
    }
    Ok(())
}

fn execute_with_nccl(runtime: &Runtime, items: Vec<Item>, limit: Duration) -> Result<()> {
    let (mut ranks, mut operations, mut divisions) = (Vec::new(), Vec::new(), Vec::new());
    for item in &items {
        let Engine::Nccl(rank) = &item.communicator.engine else { continue };
        ranks.push(&**rank);
        match &item.request {
            Request::Operation(operation) => operations.push((rank, operation)),
            Request::Division(division) => divisions.push((&**rank, division)),
        }
    }
    let ended = |issued| match issued {
        IssueError::Refused(error) => error,
        IssueError::Failed(error) => {
            log::ignore(nccl_end::abort_together(runtime, ranks.iter().copied()), "aborting communicators");
            for item in &items {
                item.communicator.end_with(&error);
            }
            error
        }
    };
    nccl::issue(runtime, &operations, limit).map_err(ended)?;
    let parts = nccl_division::divide(runtime, &divisions, limit).map_err(ended)?;
    let shrunk = items.iter().filter(|item| item.request.aborts()).map(|item| item.communicator.clone());
    let shrunk: Vec<Arc<Communicator>> = shrunk.collect();
    let requests = items.into_iter().filter(|item| matches!(item.request, Request::Division(_)));
    let delivered = requests
        .zip(parts)
        .try_for_each(|(item, part)| deliver(item, part.map(|rank| (rank.rank(), rank.size(), Engine::Nccl(rank)))));
    for communicator in &shrunk {
        communicator.fail(&Error::new(Status::ABORTED, SHRUNK));
    }
    let ranks = shrunk.iter().filter_map(|communicator| communicator.nccl_rank());
    log::ignore(nccl_end::abort_together(runtime, ranks), "aborting communicators after their shrink");
    delivered
}
