//! Launches of graphs.

use super::{
    super::{
        Moment, Report, Stream,
        order::{Line, Track},
        ranges::Piece,
        recording::{Action, Graph},
        report::Site,
    },
    Mark, Run, State,
};

/// What a launch changes, as it was before: one that is refused never happens.
struct Before {
    lines: Vec<(Track, Line)>,
    sites: Vec<(Track, Site)>,
    pieces: Vec<Piece>,
    events: Vec<(u64, Option<Mark>)>,
}

impl State {
    fn before(&mut self, known: &Graph, track: Track) -> Before {
        let (mut spans, mut events) = (Vec::new(), Vec::new());
        for node in &known.recording.nodes {
            match &node.action {
                Action::Work(planned) => {
                    spans.extend(planned.iter().map(|one| (one.operand.start, one.operand.end)));
                }
                Action::Record(event) => events.push((*event, self.events.get(event).cloned())),
                Action::Wait(_) => {}
            }
        }
        // Each byte once: what was put back must not be taken away by the next piece.
        spans.retain(|(start, end)| start < end);
        spans.sort_unstable();
        spans.dedup_by(|next, last| {
            let meets = next.0 <= last.1;
            if meets {
                last.1 = last.1.max(next.1);
            }
            meets
        });
        Before {
            lines: known.tracks.iter().chain([&track]).map(|on| (*on, self.order.line(*on))).collect(),
            sites: known.tracks.iter().map(|on| (*on, self.sides.site(*on))).collect(),
            pieces: spans.into_iter().map(|(start, end)| self.ranges.copy(start, end)).collect(),
            events,
        }
    }

    fn put_back(&mut self, before: Before) {
        before.lines.into_iter().for_each(|(track, line)| self.order.put_back(track, line));
        before.sites.into_iter().for_each(|(track, site)| self.sides.place(track, site));
        before.pieces.into_iter().for_each(|piece| self.ranges.put_back(piece));
        for (event, mark) in before.events {
            match mark {
                Some(mark) => drop(self.events.insert(event, mark)),
                None => drop(self.events.remove(&event)),
            }
        }
    }

    /// A graph is launched in a stream. What is wrong with what it does; where anything is and `refuse` is set, it will not be
    /// launched.
    pub fn replay(&mut self, graph: u64, stream: Stream, refuse: bool) -> Vec<Report> {
        let Some(mut known) = self.graphs.remove(&graph) else { return Vec::new() };
        let track = self.enter(stream);
        while known.tracks.len() < known.recording.branches() {
            known.tracks.push(self.order.add());
        }
        let before = refuse.then(|| self.before(&known, track));
        // A graph does not overlap with itself.
        if let Some(last) = &known.last {
            self.order.wait(track, last);
        }
        let begin = self.order.moment(track);
        for (branch, on) in known.tracks.iter().enumerate() {
            self.order.wait(*on, &begin);
            self.sides.place(*on, Site::Replay { graph, branch, stream });
        }
        let mut reports = Vec::new();
        let mut moments: Vec<Moment> = Vec::with_capacity(known.recording.nodes.len());
        for node in &known.recording.nodes {
            let on = known.tracks[node.branch];
            for awaited in &node.after {
                self.order.wait(on, &moments[*awaited]);
            }
            match &node.action {
                Action::Work(planned) => {
                    let run = Run { track: on, name: node.name, stack: node.stack };
                    reports.extend(self.run(run, planned.iter().copied(), false));
                }
                Action::Record(event) => {
                    let moment = self.order.moment(on);
                    self.events.insert(*event, Mark::Moment(moment));
                }
                Action::Wait(event) => {
                    if let Some(Mark::Moment(moment)) = self.events.get(event).cloned() {
                        self.order.wait(on, &moment);
                    }
                }
            }
            moments.push(self.order.moment(on));
        }
        for on in &known.tracks {
            self.order.wait(track, &self.order.moment(*on));
        }
        match before {
            Some(before) if !reports.is_empty() => self.put_back(before),
            _ => known.last = Some(self.order.moment(track)),
        }
        self.graphs.insert(graph, known);
        if self.ranges.len() >= self.sweep_at {
            self.sweep();
        }
        reports
    }
}
