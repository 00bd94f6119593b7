//! The streams of a collective's participants: the collective comes after their earlier work and before their later
//! work.

use crate::{
    error::{Error, Result},
    runtime::Runtime,
    status::Status,
    stream::{self, Stream, ordering},
};

fn is_same(one: Stream, other: Stream) -> bool {
    one.device() == other.device() && one.raw.handle() == other.raw.handle()
}

/// The streams that execute the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// One stream, for which all others wait.
    One,
    /// Every stream; each waits for every other.
    All,
}

/// The distinct streams of a collective's participants.
pub struct StreamGroup<'a> {
    /// The library's state.
    pub runtime: &'a Runtime,
    /// The stream that executes the work of one stream.
    pub work: Stream,
    others: Vec<Stream>,
    /// Whether streams that do not capture were excluded, because others do.
    has_excluded: bool,
}

impl<'a> StreamGroup<'a> {
    /// Creates the group of these streams, of which the first is the working stream if possible.
    ///
    /// Work in a capture cannot wait for work outside, nor the other way round: if any of the streams capture, only
    /// those belong to the group.
    pub fn new(runtime: &'a Runtime, streams: impl IntoIterator<Item = Stream>) -> Result<StreamGroup<'a>> {
        let mut all: Vec<Stream> = Vec::with_capacity(8);
        for stream in streams {
            if !all.iter().any(|known| is_same(*known, stream)) {
                all.push(stream);
            }
        }
        let mut capturing = Vec::new();
        for stream in &all {
            if stream::is_validated_capturing(runtime, *stream)? {
                capturing.push(*stream);
            }
        }
        let has_excluded = !capturing.is_empty() && capturing.len() < all.len();
        if has_excluded {
            all = capturing;
        }
        let mut all = all.into_iter();
        let work = all.next().ok_or_else(|| Error::new(Status::INVALID_VALUE, "a collective of no devices"))?;
        Ok(StreamGroup { runtime, work, others: all.collect(), has_excluded })
    }

    /// Returns whether all streams belong to the group.
    pub fn is_complete(&self) -> bool {
        !self.has_excluded
    }

    fn streams(&self) -> impl Iterator<Item = Stream> + '_ {
        std::iter::once(self.work).chain(self.others.iter().copied())
    }

    /// Returns the stream of a device, for work that only this device can do.
    pub fn stream_of(&self, device: u32) -> Result<Stream> {
        self.streams().find(|stream| stream.device() == device).ok_or_else(|| {
            Error::new(
                Status::NOT_SUPPORTED,
                format!("the capture does not hold a stream of device {device}, which has to work, too"),
            )
        })
    }

    /// Runs `body`, which enqueues work in the working stream, or in all. The other streams wait for it also if it
    /// fails, because a part of the work may be enqueued.
    pub fn run<T>(&self, workers: Workers, body: impl FnOnce(Stream) -> Result<T>) -> Result<T> {
        match workers {
            Workers::One => {
                for other in &self.others {
                    ordering::make_wait(self.runtime, self.work, *other)?;
                }
            }
            Workers::All => self.make_wait_mutually()?,
        }
        let outcome = body(self.work);
        let left = match workers {
            Workers::One if self.others.is_empty() => Ok(()),
            Workers::One => ordering::make_streams_wait(self.runtime, &self.others, self.work),
            Workers::All => self.make_wait_mutually(),
        };
        let value = outcome?;
        left.map(|()| value)
    }

    fn make_wait_mutually(&self) -> Result<()> {
        if self.others.is_empty() {
            return Ok(());
        }
        let streams: Vec<Stream> = self.streams().collect();
        ordering::make_wait_mutually(self.runtime, &streams)
    }
}
