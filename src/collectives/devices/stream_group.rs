//! The streams of a collective's participants: the collective comes after their earlier work and before their later
//! work.

use crate::{
    driver::types::CU_EVENT_WAIT_DEFAULT,
    error::{Context, Error, Result},
    runtime::Runtime,
    status::Status,
    stream::{self, Stream, event_pool},
};

/// Makes later work of some streams wait for the current work of another: one event, and one wait for each stream.
pub fn make_streams_wait(runtime: &Runtime, awaited: Stream, waiting: impl IntoIterator<Item = Stream>) -> Result<()> {
    event_pool::with(runtime, awaited.device, |event| {
        runtime.in_stream(awaited, |driver, raw| Ok(driver.event_record(event, raw)?))?;
        for stream in waiting {
            runtime
                .in_stream(stream, |driver, raw| Ok(driver.stream_wait_event(raw, event, CU_EVENT_WAIT_DEFAULT)?))?;
        }
        Ok(())
    })
    .context(|| format!("letting streams wait for one of device {}", awaited.device))
}

fn is_same(one: Stream, other: Stream) -> bool {
    one.device == other.device && one.raw.handle() == other.raw.handle()
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
        self.streams().find(|stream| stream.device == device).ok_or_else(|| {
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
                    make_streams_wait(self.runtime, *other, [self.work])?;
                }
            }
            Workers::All => self.synchronize_streams()?,
        }
        let outcome = body(self.work);
        let left = match workers {
            Workers::One if self.others.is_empty() => Ok(()),
            Workers::One => make_streams_wait(self.runtime, self.work, self.others.iter().copied()),
            Workers::All => self.synchronize_streams(),
        };
        let value = outcome?;
        left.map(|()| value)
    }

    /// Makes each stream wait for the current work of every other.
    fn synchronize_streams(&self) -> Result<()> {
        if self.others.is_empty() {
            return Ok(());
        }
        // Record all events before any stream waits; otherwise events would include the waits.
        let streams: Vec<Stream> = self.streams().collect();
        let mut events = Vec::with_capacity(streams.len());
        let synchronized = (|| {
            for stream in &streams {
                let device = self.runtime.device(stream.device as i32)?;
                let event = event_pool::acquire(device, &self.runtime.driver, 0)?;
                events.push(event);
                self.runtime.in_stream(*stream, |driver, raw| Ok(driver.event_record(event, raw)?))?;
            }
            for (index, stream) in streams.iter().enumerate() {
                self.runtime.in_stream(*stream, |driver, raw| {
                    for (other, event) in events.iter().enumerate() {
                        if other != index {
                            driver.stream_wait_event(raw, *event, CU_EVENT_WAIT_DEFAULT)?;
                        }
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })();
        for (stream, event) in streams.iter().zip(events) {
            if let Ok(device) = self.runtime.device(stream.device as i32) {
                event_pool::release(device, 0, event);
            }
        }
        synchronized.map_err(|error: Error| error.context("letting the streams of a collective wait for each other"))
    }
}
