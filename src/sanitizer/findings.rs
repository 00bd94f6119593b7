//! The reports so far.

use super::report::{AccessInfo, Conflict, Report, Site};
use crate::base::stack::StackId;
use std::{collections::HashMap, sync::Arc};

/// The maximum number of reports. A program has few faulty places, but may execute them often.
const MAX_REPORTS: usize = 1000;

/// What identifies the place of an access in the program.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Location(Arc<str>, StackId, Option<Site>);

impl Location {
    fn of(access: &AccessInfo) -> Location {
        // All replays of a graph count as the same location, in any stream.
        let site = (!matches!(access.site, Site::Replay { .. })).then_some(access.site);
        Location(access.name.clone(), access.stack, site)
    }
}

type Key = (Conflict, Location, Option<Location>);

/// The reports, in the order of their first finding.
#[derive(Debug, Default)]
pub struct Findings {
    reports: Vec<Report>,
    by_location: HashMap<Key, usize>,
    total: u64,
}

impl Findings {
    /// Adds a finding. Returns the stored report if it is new.
    pub fn add(&mut self, report: Report) -> Option<&Report> {
        self.total += 1;
        let key = (report.conflict, Location::of(&report.access), report.previous.as_ref().map(Location::of));
        if let Some(index) = self.by_location.get(&key) {
            self.reports[*index].times += report.times;
            return None;
        }
        if self.reports.len() == MAX_REPORTS {
            return None;
        }
        self.by_location.insert(key, self.reports.len());
        self.reports.push(report);
        self.reports.last()
    }

    /// Returns the reports.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// Returns the number of findings, including repeated ones.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Kind, Operand,
            call::{Call, Executor, Stream, StreamKind},
            state::State,
        },
        *,
    };

    #[test]
    fn counts_repeated_findings() {
        let (mut state, mut found) = (State::new(), Findings::default());
        let stream = |handle| Stream { device: 0, handle, thread: 0, kind: StreamKind::NonBlocking };
        for round in 0..5 {
            for (handle, name) in [(16, "first"), (32, "second")] {
                let operands = [Operand::new(round * 64, 64, Kind::Write)];
                let call = Call { name, stack: StackId::NONE };
                for report in state.operation(Executor::Stream(stream(handle)), call, &operands, false) {
                    assert_eq!(found.add(report).is_some(), round == 0);
                }
            }
        }
        assert_eq!((found.total(), found.reports().len(), found.reports()[0].times), (5, 1, 5));
        found = Findings::default();
        assert_eq!((found.total(), found.reports().len()), (0, 0));
    }
}
