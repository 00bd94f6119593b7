//! The engine of ranks that are devices of one process.
//!
//! Each rank brings its part, from one thread in a group or from a thread each; who brings the last part puts the whole
//! into the streams: by the library's own kernels, or by NCCL. A rank's call returns when that has happened, so what the
//! rank gives its stream afterwards comes after it. A rank that waits in vain gives up at its time, and with it the team.

use super::{
    engine::{Choice, LOCAL_NCCL_FROM, nccl_from},
    nccl::{self, Issued, Rank},
    operation::{Kind, Operation},
    sticky_error::Trouble,
};
use crate::base::deadline::Deadline;
use crate::{
    collectives::devices::local::{self, Part},
    driver::nccl::Nccl,
    error::{Error, Result},
    runtime::Runtime,
    sanitizer,
    status::Status,
    stream::{self, Stream},
};
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Ranks that are devices of this process.
pub struct Team {
    devices: Vec<u32>,
    engine: Choice,
    limit: Duration,
    /// From how many bytes on NCCL is asked, if it is there.
    nccl_from: u64,
    state: Mutex<State>,
    news: Condvar,
    /// NCCL's communicators, if they could be made when they were first wanted.
    nccl: OnceCell<Option<Vec<Rank>>>,
}

#[derive(Default)]
struct State {
    /// What each rank has asked for and does not yet do: all together, and from one rank to another.
    asked: Vec<VecDeque<Waiting>>,
    sends: HashMap<(u32, u32), VecDeque<Waiting>>,
    receives: HashMap<(u32, u32), VecDeque<Waiting>>,
    /// Why nothing more can be done.
    broken: Option<Trouble>,
}

/// What a rank asks for.
#[derive(Clone, Copy)]
pub enum Asked {
    /// Something that ranks do together.
    Operation(Operation),
    /// A part of the communicator for the ranks of each color, ordered by key.
    Split {
        /// The rank's color; `None` to be in no part.
        color: Option<u32>,
        /// Its key.
        key: i32,
    },
}

/// What a rank gets.
pub enum Outcome {
    /// What it asked for is in its stream.
    Done,
    /// Its seat in the part of its color.
    Part(Option<Seat>),
}

/// A part that a rank brings.
struct Brought<'a> {
    seat: &'a Seat,
    asked: Asked,
    ticket: Arc<Ticket>,
}

/// One that waits for the others' parts.
struct Waiting {
    asked: Asked,
    ticket: Arc<Ticket>,
}

/// Where a rank finds what came of what it asked.
#[derive(Default)]
struct Ticket(Mutex<Option<std::result::Result<Outcome, Trouble>>>);

/// One rank of a team.
#[derive(Clone)]
pub struct Seat {
    team: Arc<Team>,
    rank: u32,
}

impl Seat {
    /// Its rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.team.devices.len() as u32
    }

    /// Its device.
    pub fn device(&self) -> u32 {
        self.team.devices[self.rank as usize]
    }

    /// The error that ended the team.
    pub fn trouble(&self) -> Option<Error> {
        let rank = self.team.nccl.get().and_then(|ranks| ranks.as_ref()?.get(self.rank as usize));
        // What is being done right now under the lock has its own way to tell.
        let broken = self.team.state.try_lock().and_then(|state| state.broken.as_ref().map(Trouble::error));
        broken.or_else(|| rank?.check_health().err())
    }

    /// Ends the team: whoever waits gets an error, and so does whoever comes.
    pub fn abort(&self, runtime: &Runtime) -> Result<()> {
        // First, since a call of NCCL's that does not come back has the lock.
        let mut aborted = Ok(());
        for rank in self.team.nccl.get().into_iter().flatten().flatten() {
            aborted = aborted.and(rank.abort(runtime));
        }
        self.team.fail(Trouble::new(Status::ABORTED, format!("rank {} aborted the communicator", self.rank)));
        aborted
    }

    /// Ends what belongs to all seats, if this is the last.
    pub fn leave(self, runtime: &Runtime) -> Result<()> {
        let Some(team) = Arc::into_inner(self.team) else { return Ok(()) };
        for rank in team.nccl.into_inner().into_iter().flatten().flatten() {
            rank.destroy(runtime)?;
        }
        Ok(())
    }

    /// Whether NCCL did or would carry out an operation of so many bytes.
    pub fn uses_nccl(&self) -> bool {
        self.team.engine == Choice::Nccl
    }
}

/// Makes a team of devices; the seats in order. A device may not be there twice.
pub fn gather(runtime: &Runtime, devices: &[u32], engine: Choice, limit: Duration) -> Result<Vec<Seat>> {
    let state = State { asked: devices.iter().map(|_| VecDeque::new()).collect(), ..State::default() };
    let team = Arc::new(Team {
        devices: devices.to_vec(),
        engine,
        limit,
        nccl_from: nccl_from(LOCAL_NCCL_FROM)?,
        state: Mutex::new(state),
        news: Condvar::new(),
        nccl: OnceCell::new(),
    });
    if engine == Choice::Nccl {
        let ranks = team.connect(runtime, nccl::available(runtime)?)?;
        // Nobody else has the team yet.
        let _ = team.nccl.set(Some(ranks));
    }
    Ok(team.seats().collect())
}

/// Brings what ranks of this process ask for, and waits until all of it is in its streams. The parts of a team come at once, so
/// that those of two threads do not mix. After an error nothing of it is left to be done later, in memory that its owner
/// may have given to something else by then.
pub fn bring(runtime: &Runtime, batch: &[(Seat, Asked)], limit: Duration) -> Result<Vec<Outcome>> {
    let patience = Deadline::new(limit);
    let parts: Vec<Brought> =
        batch.iter().map(|(seat, asked)| Brought { seat, asked: *asked, ticket: Arc::default() }).collect();
    let mut teams: Vec<&Arc<Team>> = Vec::new();
    for part in &parts {
        if !teams.iter().any(|team| Arc::ptr_eq(team, &part.seat.team)) {
            teams.push(&part.seat.team);
        }
    }
    let mut outcomes = Vec::with_capacity(parts.len());
    let Err(error) = carry_out(runtime, &parts, &teams, &patience, &mut outcomes) else { return Ok(outcomes) };
    for team in teams {
        team.withdraw(&parts);
    }
    outcomes.extend(parts.iter().filter_map(|part| part.ticket.0.lock().take()?.ok()));
    for outcome in outcomes {
        if let Outcome::Part(Some(seat)) = outcome {
            // Nobody gets it any more, and what ended the batch is more to the point.
            let _ = seat.leave(runtime);
        }
    }
    Err(error)
}

fn carry_out(
    runtime: &Runtime,
    parts: &[Brought],
    teams: &[&Arc<Team>],
    patience: &Deadline,
    outcomes: &mut Vec<Outcome>,
) -> Result<()> {
    // First, so that a team that is broken does not let the others' work begin.
    teams.iter().try_for_each(|team| team.state.lock().check())?;
    teams.iter().try_for_each(|team| team.queue(parts))?;
    for team in teams {
        team.carry_out(runtime);
    }
    for part in parts {
        outcomes.push(part.wait(patience)?);
    }
    Ok(())
}

impl State {
    fn check(&self) -> Result<()> {
        self.broken.as_ref().map_or(Ok(()), |trouble| Err(trouble.error()))
    }
}

impl Brought<'_> {
    fn wait(&self, patience: &Deadline) -> Result<Outcome> {
        let (seat, team) = (self.seat, &self.seat.team);
        let mut state = team.state.lock();
        loop {
            if let Some(outcome) = self.ticket.0.lock().take() {
                return outcome.map_err(|trouble| trouble.error());
            }
            state.check()?;
            let over = match patience.end() {
                Some(end) => team.news.wait_until(&mut state, end).timed_out(),
                None => {
                    team.news.wait(&mut state);
                    false
                }
            };
            if over && self.ticket.0.lock().is_none() {
                let who = seat.missing(&state, &self.asked);
                let error = patience.error(format_args!("rank {} waited for {who}", seat.rank));
                // The others would wait for this rank in vain from now on.
                state.broken.get_or_insert_with(|| Trouble::end(&error));
                team.news.notify_all();
                return Err(error);
            }
        }
    }
}

impl Seat {
    /// Whom this rank waits for, in words.
    fn missing(&self, state: &State, asked: &Asked) -> String {
        match asked {
            Asked::Operation(Operation { kind: Kind::Send { peer } | Kind::Receive { peer }, .. }) => {
                format!("rank {peer}")
            }
            _ => {
                let missing = (0..self.size()).filter(|rank| state.asked[*rank as usize].is_empty());
                let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
                format!("{} {}", if missing.len() == 1 { "rank" } else { "ranks" }, missing.join(", "))
            }
        }
    }
}

impl Team {
    fn seats(self: &Arc<Team>) -> impl Iterator<Item = Seat> {
        (0..self.devices.len() as u32).map(|rank| Seat { team: self.clone(), rank })
    }

    fn fail(&self, trouble: Trouble) {
        self.state.lock().broken.get_or_insert(trouble);
        self.news.notify_all();
    }

    /// Puts those of the parts that are this team's on its lists.
    fn queue(self: &Arc<Team>, parts: &[Brought]) -> Result<()> {
        let mut state = self.state.lock();
        state.check()?;
        for Brought { seat, asked, ticket } in parts.iter().filter(|part| Arc::ptr_eq(&part.seat.team, self)) {
            let waiting = Waiting { asked: *asked, ticket: ticket.clone() };
            let list = match *asked {
                Asked::Operation(Operation { kind: Kind::Send { peer }, .. }) => {
                    state.sends.entry((seat.rank, peer)).or_default()
                }
                Asked::Operation(Operation { kind: Kind::Receive { peer }, .. }) => {
                    state.receives.entry((peer, seat.rank)).or_default()
                }
                _ => &mut state.asked[seat.rank as usize],
            };
            list.push_back(waiting);
        }
        Ok(())
    }

    /// Takes back those of the parts that are on its lists still. What a part has been taken into is in its streams when this
    /// returns, for that is done under the lock.
    fn withdraw(&self, parts: &[Brought]) {
        let mut state = self.state.lock();
        let State { asked, sends, receives, .. } = &mut *state;
        for list in asked.iter_mut().chain(sends.values_mut()).chain(receives.values_mut()) {
            list.retain(|waiting| !parts.iter().any(|part| Arc::ptr_eq(&part.ticket, &waiting.ticket)));
        }
    }

    /// Puts into the streams whatever all its ranks have come for. Under the lock, so that the order is one for all.
    fn carry_out(self: &Arc<Team>, runtime: &Runtime) {
        let mut state = self.state.lock();
        while state.broken.is_none() && state.asked.iter().all(|queue| !queue.is_empty()) {
            let round: Vec<Waiting> = state.asked.iter_mut().filter_map(VecDeque::pop_front).collect();
            state.broken = self.do_round(runtime, &round);
        }
        let State { sends, receives, broken, .. } = &mut *state;
        for (pair, sends) in sends.iter_mut() {
            let Some(receives) = receives.get_mut(pair) else { continue };
            while broken.is_none() && !sends.is_empty() && !receives.is_empty() {
                if let (Some(send), Some(receive)) = (sends.pop_front(), receives.pop_front()) {
                    let moved = self.do_pair(runtime, *pair, &send, &receive).map_err(Trouble::from);
                    *send.ticket.0.lock() = Some(moved.clone().map(|()| Outcome::Done));
                    *receive.ticket.0.lock() = Some(moved.map(|()| Outcome::Done));
                }
            }
        }
        self.news.notify_all();
    }

    /// Does what every rank has brought a part of; what then ended the team, if it did not survive it.
    fn do_round(self: &Arc<Team>, runtime: &Runtime, round: &[Waiting]) -> Option<Trouble> {
        let mut operations = Vec::new();
        let mut splits = Vec::new();
        for waiting in round {
            match waiting.asked {
                Asked::Operation(operation) => operations.push(operation),
                Asked::Split { color, key } => splits.push((color, key)),
            }
        }
        if operations.len() == round.len() {
            let done = self.operate(runtime, &operations);
            let end = match &done {
                Err(Issued::Failed(error)) => Some(Trouble::end(error)),
                _ => None,
            };
            let done = done.map_err(|issued| Trouble::from(issued.into_error()));
            for waiting in round {
                *waiting.ticket.0.lock() = Some(done.clone().map(|()| Outcome::Done));
            }
            return end;
        } else if splits.len() == round.len() {
            match self.split(runtime, &splits).map_err(Trouble::from) {
                Ok(parts) => {
                    for (waiting, part) in round.iter().zip(parts) {
                        *waiting.ticket.0.lock() = Some(Ok(Outcome::Part(part)));
                    }
                }
                Err(trouble) => {
                    for waiting in round {
                        *waiting.ticket.0.lock() = Some(Err(trouble.clone()));
                    }
                }
            }
        } else {
            let trouble =
                Trouble::new(Status::RANK_MISMATCH, "some ranks ask for a split, and others for something else");
            for waiting in round {
                *waiting.ticket.0.lock() = Some(Err(trouble.clone()));
            }
        }
        None
    }

    fn operate(&self, runtime: &Runtime, operations: &[Operation]) -> std::result::Result<(), Issued> {
        let Some(first) = operations.first() else { return Ok(()) };
        if let Some(other) = operations.iter().position(|operation| !operation.agrees(first)) {
            return Err(disagreement((0, first), (other, &operations[other])).into());
        }
        if first.count == 0 {
            return Ok(());
        }
        if let Some(ranks) = self.nccl_for(runtime, operations)? {
            let size = self.devices.len() as u32;
            let batch: Vec<_> = ranks.iter().zip(operations).map(|(rank, operation)| (rank, size, operation)).collect();
            nccl::issue(runtime, &batch, self.limit).inspect_err(|issued| {
                if let Issued::Failed(_) = issued {
                    for rank in ranks {
                        // A part of it may be in a stream, and wait there for the rest. The error stays the first.
                        let _ = rank.abort(runtime);
                    }
                }
            })?;
            let streams: Vec<Stream> = operations.iter().map(|operation| operation.stream).collect();
            sanitizer::wait_mutually(&streams, |waiting, awaited| match first.kind {
                Kind::Broadcast { root } => awaited == root as usize,
                Kind::Reduce { root, .. } => waiting == root as usize,
                _ => true,
            });
            return Ok(());
        }
        let parts: Vec<Part> = operations
            .iter()
            .zip(&self.devices)
            .map(|(operation, device)| Part {
                device: *device,
                stream: operation.stream,
                from: operation.from,
                to: operation.to,
            })
            .collect();
        let (count, element) = (first.count, first.element);
        match first.kind {
            Kind::AllReduce { op } => local::all_reduce(&parts, count, element, op),
            Kind::Reduce { op, root } => local::reduce(&parts, root as usize, count, element, op),
            Kind::Broadcast { root } => local::broadcast(&parts, root as usize, count, element),
            Kind::AllGather => local::all_gather(&parts, count, element),
            Kind::ReduceScatter { op } => local::reduce_scatter(&parts, count, element, op),
            Kind::AllToAll => local::all_to_all(&parts, count, element),
            // These never come here: they are asked for in queues of their own.
            Kind::Send { .. } | Kind::Receive { .. } => {
                Err(Error::new(Status::PANIC, "two ranks' work among all ranks'"))
            }
        }
        .map_err(Issued::Refused)
    }

    /// One rank sends what another receives: a copy between their streams.
    fn do_pair(&self, runtime: &Runtime, pair: (u32, u32), send: &Waiting, receive: &Waiting) -> Result<()> {
        let (Asked::Operation(send), Asked::Operation(receive)) = (send.asked, receive.asked) else { return Ok(()) };
        if (send.count, send.element) != (receive.count, receive.element) {
            return Err(disagreement((pair.0 as usize, &send), (pair.1 as usize, &receive)));
        }
        if send.count == 0 {
            return Ok(());
        }
        let context = |rank: u32| {
            let device = runtime.device(self.devices[rank as usize] as i32)?;
            device.context(&runtime.driver)
        };
        let (to, from) = (context(pair.1)?, context(pair.0)?);
        let apart = (send.stream.raw, send.stream.device) != (receive.stream.raw, receive.stream.device);
        if apart {
            stream::make_wait(runtime, send.stream, receive.stream)?;
        }
        sanitizer::access(runtime, send.stream, &[sanitizer::read(send.from), sanitizer::write(receive.to)])?;
        runtime.in_stream(send.stream, |driver, raw| Ok(driver.copy_peer(receive.to, to, send.from, from, raw)?))?;
        if apart {
            stream::make_wait(runtime, receive.stream, send.stream)?;
        }
        Ok(())
    }

    /// NCCL's communicators, if NCCL is to do this.
    fn nccl_for(&self, runtime: &Runtime, operations: &[Operation]) -> Result<Option<&[Rank]>> {
        if let Some(made) = self.nccl.get()
            && (made.is_none() || self.engine == Choice::Nccl)
        {
            return Ok(made.as_deref());
        }
        let large = operations.first().is_some_and(|operation| operation.bytes() >= self.nccl_from);
        if self.engine != Choice::Auto || !large || self.devices.len() < 2 {
            return Ok(None);
        }
        if self.nccl.get().is_none() {
            // NCCL allocates while it connects, which a capture forbids.
            for operation in operations {
                if stream::is_validated_capturing(runtime, operation.stream)? {
                    return Ok(None);
                }
            }
        }
        // Without NCCL the library's own kernels do it; nobody asked for NCCL by name.
        let made = self.nccl.get_or_init(|| nccl::available(runtime).and_then(|nccl| self.connect(runtime, nccl)).ok());
        Ok(made.as_deref())
    }

    /// Makes NCCL's communicators of the devices. In NCCL's blocking mode, which is the cheaper one: all ranks are here, so
    /// none is waited for in vain.
    fn connect(&self, runtime: &Runtime, nccl: &'static Nccl) -> Result<Vec<Rank>> {
        let id = nccl.unique_id()?;
        let size = self.devices.len() as u32;
        let mut ranks = Vec::new();
        let join_all = || {
            for (rank, device) in self.devices.iter().enumerate() {
                ranks.push(Rank::join(runtime, nccl, id, (rank as u32, size), *device, true)?);
            }
            Ok(())
        };
        let connected = nccl.group(join_all).and_then(|_| {
            ranks.iter().try_for_each(|rank| rank.wait_until_ready(self.limit, "NCCL connected the devices"))
        });
        if let Err(error) = connected {
            for rank in &ranks {
                // What NCCL says of the abort is less to the point.
                let _ = rank.abort(runtime);
            }
            return Err(error);
        }
        Ok(ranks)
    }

    /// A team for the ranks of each color; each rank's seat in order.
    fn split(&self, runtime: &Runtime, asked: &[(Option<u32>, i32)]) -> Result<Vec<Option<Seat>>> {
        let mut seats: Vec<Option<Seat>> = asked.iter().map(|_| None).collect();
        let mut colors: Vec<u32> = asked.iter().filter_map(|(color, _)| *color).collect();
        colors.sort_unstable();
        colors.dedup();
        for color in colors {
            let mut members: Vec<usize> = (0..asked.len()).filter(|rank| asked[*rank].0 == Some(color)).collect();
            members.sort_by_key(|rank| asked[*rank].1);
            let devices: Vec<u32> = members.iter().map(|rank| self.devices[*rank]).collect();
            for (rank, seat) in members.into_iter().zip(gather(runtime, &devices, self.engine, self.limit)?) {
                seats[rank] = Some(seat);
            }
        }
        Ok(seats)
    }
}

#[cold]
fn disagreement(one: (usize, &Operation), other: (usize, &Operation)) -> Error {
    Error::new(
        Status::RANK_MISMATCH,
        format!("rank {} asks for {}, and rank {} for {}", one.0, one.1, other.0, other.1),
    )
}
