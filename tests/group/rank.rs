//! The state of a scenario's rank: its number, a group, streams and memory.

use plinth::internal::{
    collectives::processes::ProcessGroup,
    runtime::{self, Runtime},
    stream::{self, Stream},
};
use plinth_driver::Span;
use std::time::{Duration, Instant};

pub struct Me {
    pub rank: u32,
    pub size: u32,
    pub ids: Vec<[u8; 128]>,
}

fn number(name: &str) -> u32 {
    std::env::var(name).unwrap().parse().unwrap()
}

pub fn me() -> Me {
    let ids = std::env::var("PLINTH_TEST_ID").unwrap();
    let id = |text: &str| std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap());
    Me { rank: number("PLINTH_TEST_RANK"), size: number("PLINTH_TEST_SIZE"), ids: ids.split(',').map(id).collect() }
}

pub const SOON: Option<Duration> = Some(Duration::from_secs(60));

/// Returns the device of a rank; ranks share devices if there are more of them.
pub fn device_of(rank: u32) -> u32 {
    rank % runtime::ready().unwrap().devices().len() as u32
}

impl Me {
    pub fn device(&self) -> u32 {
        device_of(self.rank)
    }

    pub fn join(&self) -> ProcessGroup {
        let group = ProcessGroup::join(&self.ids[0], self.rank, self.size, self.device(), SOON).unwrap();
        group.set_timeout(Duration::from_secs(60));
        assert_eq!((group.rank(), group.size(), group.device()), (self.rank, self.size, self.device()));
        group
    }
}

pub fn new_stream(device: u32) -> Stream {
    let handle = stream::create(device as i32, 0).unwrap();
    stream::resolve(runtime::ready().unwrap(), handle).unwrap()
}

/// Memory of a device.
pub struct Memory {
    device: u32,
    pub span: Span,
}

pub fn in_context<T>(device: u32, body: impl FnOnce(&'static Runtime) -> T) -> T {
    let runtime = runtime::ready().unwrap();
    let device = runtime.device(device as i32).unwrap();
    device.with_context(&runtime.driver, |_| Ok(body(runtime))).unwrap()
}

impl Memory {
    pub fn new(device: u32, bytes: usize) -> Memory {
        let address = in_context(device, |runtime| runtime.driver.memory_alloc(bytes.max(1)).unwrap());
        // SAFETY: just allocated, and freed when this is dropped, which waits for the device.
        Memory { device, span: unsafe { Span::new(address, bytes) } }
    }

    pub fn of(stream: Stream, bytes: &[u8]) -> Memory {
        let memory = Memory::new(stream.device(), bytes.len());
        memory.write(0, bytes, stream);
        memory
    }

    pub fn part(&self, from: usize, bytes: usize) -> Span {
        self.span.part(from, bytes)
    }

    pub fn write(&self, at: usize, bytes: &[u8], stream: Stream) {
        in_context(self.device, |runtime| {
            // SAFETY: the bytes outlive the copy, which has completed before this returns.
            let source = unsafe { Span::new(bytes.as_ptr() as u64, bytes.len()) };
            runtime.driver.copy(self.part(at, bytes.len()), source, stream.raw).unwrap();
            runtime.driver.stream_synchronize(stream.raw).unwrap();
        });
    }

    pub fn read(&self, stream: Stream) -> Vec<u8> {
        let mut bytes = vec![0_u8; self.span.bytes()];
        in_context(self.device, |runtime| {
            // SAFETY: the bytes outlive the copy, which has completed before this returns.
            let target = unsafe { Span::new(bytes.as_mut_ptr() as u64, bytes.len()) };
            runtime.driver.copy(target, self.span, stream.raw).unwrap();
            runtime.driver.stream_synchronize(stream.raw).unwrap();
        });
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        in_context(self.device, |runtime| runtime.driver.memory_free(self.span).unwrap());
    }
}

pub fn synchronize(stream: Stream) {
    in_context(stream.device(), |runtime| runtime.driver.stream_synchronize(stream.raw).unwrap());
}

/// Keeps a stream busy with a sleep kernel for about `milliseconds`, at the clock rate of an H200.
pub fn be_busy(stream: Stream, milliseconds: u64) {
    plinth::internal::stream::kernel::sleep(milliseconds * 1_980_000, stream.raw.handle()).unwrap();
}

/// Polls until `query` returns a value. After 60 seconds, fails with the message `what`.
pub fn eventually<T>(what: &str, mut query: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = query() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
