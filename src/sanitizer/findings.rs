//! What was found so far.

use super::{
    Report,
    report::{Conflict, Side, Site},
};
use crate::base::stack::StackId;
use std::{collections::HashMap, sync::Arc};

/// Reports that are kept. A program has few places that are wrong, and runs through them often.
const MOST: usize = 1000;

/// By what two findings are one report.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place(Arc<str>, StackId, Option<Site>);

impl Place {
    fn of(side: &Side) -> Place {
        // Each replay of a graph is at the same place, whatever stream it is in.
        let site = (!matches!(side.site, Site::Replay { .. })).then_some(side.site);
        Place(side.name.clone(), side.stack, site)
    }
}

type Key = (Conflict, Place, Option<Place>);

/// The reports, in the order in which they were found.
#[derive(Debug, Default)]
pub struct Found {
    reports: Vec<Report>,
    places: HashMap<Key, usize>,
    total: u64,
}

impl Found {
    /// Adds what was found. The report, as it is kept, if it is new.
    pub fn add(&mut self, report: Report) -> Option<&Report> {
        self.total += 1;
        let key = (report.conflict, Place::of(&report.access), report.previous.as_ref().map(Place::of));
        if let Some(index) = self.places.get(&key) {
            self.reports[*index].times += report.times;
            return None;
        }
        if self.reports.len() == MOST {
            return None;
        }
        self.places.insert(key, self.reports.len());
        self.reports.push(report);
        self.reports.last()
    }

    /// The reports.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// How often anything was found.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        *self = Found::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Call, Kind, Manner, Operand, Place as Where, State, Stream},
        *,
    };

    #[test]
    fn what_is_found_again_is_counted() {
        let (mut state, mut found) = (State::new(), Found::default());
        let stream = |handle| Stream { device: 0, handle, thread: 0, manner: Manner::Apart };
        for round in 0..5 {
            for (handle, name) in [(16, "first"), (32, "second")] {
                let operands = [Operand::new(round * 64, 64, Kind::Write)];
                let call = Call { name, stack: StackId::NONE };
                for report in state.operation(Where::Stream(stream(handle)), call, &operands, false) {
                    assert_eq!(found.add(report).is_some(), round == 0);
                }
            }
        }
        assert_eq!((found.total(), found.reports().len(), found.reports()[0].times), (5, 1, 5));
        found.clear();
        assert_eq!((found.total(), found.reports().len()), (0, 0));
    }
}
