//! Tests of the sanitizer's model.

mod programs;
mod search;

use super::{call::Stream, state::State};

/// Waits of the CPU that complete at once.
impl State {
    fn finish_stream(&mut self, stream: Stream) {
        let end = self.end_of_stream(stream);
        self.finish(&end);
    }

    fn finish_device(&mut self, device: u32) {
        self.end_of_device(device).iter().for_each(|end| self.finish(end));
    }

    fn finish_event(&mut self, event: u64) {
        if let Some(end) = self.end_of_event(event) {
            self.finish(&end);
        }
    }
}
