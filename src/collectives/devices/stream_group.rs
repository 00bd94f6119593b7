//! Order: whoever takes part in a collective has done its earlier work before, and goes on only after.

use crate::{
    driver::types::CU_EVENT_WAIT_DEFAULT,
    error::{Context, Error, Result},
    runtime::Runtime,
    status::Status,
    stream::{self, Stream, event_pool},
};

/// Lets later work of some streams wait for the work that another has now: one record, and a wait each.
pub fn follow(runtime: &Runtime, awaited: Stream, waiting: impl IntoIterator<Item = Stream>) -> Result<()> {
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

/// Who works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// One stream, which all others wait for.
    One,
    /// Every stream, and each waits for every other.
    All,
}

/// The streams that take part in a collective, each once.
pub struct Crew<'a> {
    /// The library's state.
    pub runtime: &'a Runtime,
    /// The stream that works where one does.
    pub work: Stream,
    others: Vec<Stream>,
    /// Whether streams that do not capture were left out, because others do.
    left_out: bool,
}

impl<'a> Crew<'a> {
    /// The crew of these streams, of which the first works if that may be.
    ///
    /// A capture cannot wait for work that it does not hold, nor be waited for: if any of the streams capture, only those
    /// count, and one of them works.
    pub fn new(runtime: &'a Runtime, streams: impl IntoIterator<Item = Stream>) -> Result<Crew<'a>> {
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
        let left_out = !capturing.is_empty() && capturing.len() < all.len();
        if left_out {
            all = capturing;
        }
        let mut all = all.into_iter();
        let work = all.next().ok_or_else(|| Error::new(Status::INVALID_VALUE, "a collective of no devices"))?;
        Ok(Crew { runtime, work, others: all.collect(), left_out })
    }

    /// Whether every stream that was asked for takes part.
    pub fn is_whole(&self) -> bool {
        !self.left_out
    }

    fn streams(&self) -> impl Iterator<Item = Stream> + '_ {
        std::iter::once(self.work).chain(self.others.iter().copied())
    }

    /// A stream of a device, where work that only this device can do goes.
    pub fn stream_of(&self, device: u32) -> Result<Stream> {
        self.streams().find(|stream| stream.device == device).ok_or_else(|| {
            Error::new(
                Status::NOT_SUPPORTED,
                format!("the capture does not hold a stream of device {device}, which has to work, too"),
            )
        })
    }

    /// Runs `body`, which gives work to the stream that works, or to all. The others follow also where it fails: part of
    /// the work may be under way.
    pub fn run<T>(&self, workers: Workers, body: impl FnOnce(Stream) -> Result<T>) -> Result<T> {
        match workers {
            Workers::One => {
                for other in &self.others {
                    follow(self.runtime, *other, [self.work])?;
                }
            }
            Workers::All => self.meet()?,
        }
        let outcome = body(self.work);
        let left = match workers {
            Workers::One if self.others.is_empty() => Ok(()),
            Workers::One => follow(self.runtime, self.work, self.others.iter().copied()),
            Workers::All => self.meet(),
        };
        let value = outcome?;
        left.map(|()| value)
    }

    /// Lets each stream wait for what every other has now.
    fn meet(&self) -> Result<()> {
        if self.others.is_empty() {
            return Ok(());
        }
        // The events of all are recorded before any stream waits, or they would wait for each other's waits.
        let streams: Vec<Stream> = self.streams().collect();
        let mut events = Vec::with_capacity(streams.len());
        let met = (|| {
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
        met.map_err(|error: Error| error.context("letting the streams of a collective wait for each other"))
    }
}
