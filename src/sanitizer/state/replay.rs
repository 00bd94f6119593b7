//! Replays of graphs.

use super::{
    super::{
        Moment, Report, Stream,
        order::{Track, TrackState},
        ranges::SavedRange,
        recording::{Action, Graph},
        report::Site,
    },
    Operation, Position, State,
};

/// The state that a replay changes, saved so that a refused replay can be undone.
struct SavedState {
    tracks: Vec<(Track, TrackState)>,
    sites: Vec<(Track, Site)>,
    ranges: Vec<SavedRange>,
    events: Vec<(u64, Option<Position>)>,
}

impl State {
    fn save(&mut self, graph: &Graph, track: Track) -> SavedState {
        let (mut spans, mut events) = (Vec::new(), Vec::new());
        for node in &graph.recording.nodes {
            match &node.action {
                Action::Work(planned) => {
                    spans.extend(planned.iter().map(|one| (one.operand.start, one.operand.end)));
                }
                Action::Record(event) => events.push((*event, self.events.get(event).cloned())),
                Action::Wait(_) => {}
            }
        }
        // Merge overlapping spans: restoring one range must not remove accesses that another one restored.
        spans.retain(|(start, end)| start < end);
        spans.sort_unstable();
        spans.dedup_by(|next, last| {
            let meets = next.0 <= last.1;
            if meets {
                last.1 = last.1.max(next.1);
            }
            meets
        });
        SavedState {
            tracks: graph.tracks.iter().chain([&track]).map(|on| (*on, self.order.save(*on))).collect(),
            sites: graph.tracks.iter().map(|on| (*on, self.names.site(*on))).collect(),
            ranges: spans.into_iter().map(|(start, end)| self.ranges.save(start, end)).collect(),
            events,
        }
    }

    fn restore(&mut self, saved: SavedState) {
        saved.tracks.into_iter().for_each(|(track, state)| self.order.restore(track, state));
        saved.sites.into_iter().for_each(|(track, site)| self.names.set_site(track, site));
        saved.ranges.into_iter().for_each(|range| self.ranges.restore(range));
        for (event, position) in saved.events {
            match position {
                Some(position) => drop(self.events.insert(event, position)),
                None => drop(self.events.remove(&event)),
            }
        }
    }

    /// Checks and adds the launch of a graph in a stream. Returns the findings. If there are any and `refuse` is set,
    /// the launch is not added, because it will not be made.
    pub fn replay(&mut self, graph: u64, stream: Stream, refuse: bool) -> Vec<Report> {
        let Some(mut launched) = self.graphs.remove(&graph) else { return Vec::new() };
        let track = self.enter_stream(stream);
        while launched.tracks.len() < launched.recording.branches() {
            launched.tracks.push(self.order.add());
        }
        let saved = refuse.then(|| self.save(&launched, track));
        // Replays of the same graph do not overlap.
        if let Some(last) = &launched.last {
            self.order.wait(track, last);
        }
        let begin = self.order.moment(track);
        for (branch, on) in launched.tracks.iter().enumerate() {
            self.order.wait(*on, &begin);
            self.names.set_site(*on, Site::Replay { graph, branch, stream });
        }
        let mut reports = Vec::new();
        let mut moments: Vec<Moment> = Vec::with_capacity(launched.recording.nodes.len());
        for node in &launched.recording.nodes {
            let on = launched.tracks[node.branch];
            for awaited in &node.after {
                self.order.wait(on, &moments[*awaited]);
            }
            match &node.action {
                Action::Work(planned) => {
                    let operation = Operation { track: on, name: node.name, stack: node.stack };
                    reports.extend(self.run(operation, planned.iter().copied(), false));
                }
                Action::Record(event) => {
                    let moment = self.order.moment(on);
                    self.events.insert(*event, Position::Moment(moment));
                }
                Action::Wait(event) => {
                    if let Some(Position::Moment(moment)) = self.events.get(event).cloned() {
                        self.order.wait(on, &moment);
                    }
                }
            }
            moments.push(self.order.moment(on));
        }
        for on in &launched.tracks {
            self.order.wait(track, &self.order.moment(*on));
        }
        match saved {
            Some(saved) if !reports.is_empty() => self.restore(saved),
            _ => launched.last = Some(self.order.moment(track)),
        }
        self.graphs.insert(graph, launched);
        self.sweep_if_due();
        reports
    }
}
