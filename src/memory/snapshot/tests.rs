//! Synthetic snapshots, written in every format and read again.

use super::{
    super::{
        block::Zone,
        history::{Action, Annotation, Entry, Frame, StackId},
        pool::PoolId,
    },
    Block, BlockState, DeviceTotals, Format, Segment, Snapshot, Stacks, file, json, page, pickle,
};
use crate::temporary;
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f30_0000_0000;

/// Returns the stack with a number: a distinct function with shared callers.
fn frames(stack: StackId) -> Arc<[Frame]> {
    let frame = |name: String, line| Frame { name, file: "/home/model/</script>/net \"1\".cpp".into(), line };
    (0..3).map(|depth| frame(format!("layer<{}>::step_{depth}(é)", stack.0 / (1 + depth)), 10 * depth + 1)).collect()
}

/// The history of a training: each layer allocates in the forward pass and frees in the backward pass, and at the end
/// a request fails.
struct Training {
    trace: Vec<Entry>,
    live: BTreeMap<u64, (u64, u32)>,
    time: u64,
}

impl Training {
    fn push(&mut self, action: Action, address: u64, size: u64, stack: u32) {
        self.time += 7;
        self.trace.push(Entry {
            action,
            address,
            size,
            stream: 0,
            pool: PoolId::DEFAULT,
            time_us: self.time,
            stack: StackId(stack),
            metadata: (stack % 3 == 1).then(|| "forward \u{1f600}\n".into()),
            thread: 4711,
            name: (stack % 3 == 1).then(|| "weights \"1\"".into()),
        });
    }

    fn alloc(&mut self, address: u64, size: u64, stack: u32) {
        self.push(Action::Alloc, address, size, stack);
        self.live.insert(address, (size, stack));
    }

    fn free(&mut self, address: u64) {
        if let Some((size, stack)) = self.live.remove(&address) {
            self.push(Action::FreeRequested, address, size, stack);
            self.push(Action::FreeCompleted, address, size, stack);
        }
    }
}

fn training(steps: u64, layers: u64) -> Snapshot {
    let mut run = Training { trace: Vec::new(), live: BTreeMap::new(), time: 1_700_000_000_000_000 };
    let mut annotations = Vec::new();
    let place = |layer: u64, which: u64| BASE + (layer * 4 + which) * 2 * MIB;
    let bytes = layers * 8 * MIB;
    run.push(Action::SegmentMap, BASE, bytes, 0);
    for layer in 0..layers {
        run.alloc(place(layer, 0), MIB + 1000 * layer, 1);
    }
    for step in 0..steps {
        let name = format!("step {step}");
        annotations.push(Annotation { device: 0, time_us: run.time, name: name.clone(), begin: true });
        for layer in 0..layers {
            run.alloc(place(layer, 1), 700_000 + layer * 100, 10 + layer as u32);
            run.alloc(place(layer, 2), 300_000, 1000 + layer as u32);
            run.free(place(layer, 2));
        }
        for layer in (0..layers).rev() {
            run.alloc(place(layer, 3), MIB + 1000 * layer, 3);
            run.free(place(layer, 1));
        }
        (0..layers).for_each(|layer| run.free(place(layer, 3)));
        annotations.push(Annotation { device: 0, time_us: run.time, name, begin: false });
    }
    run.push(Action::Oom, 3 * MIB, 1 << 36, 5);
    snapshot_of(run, annotations, bytes)
}

/// Creates the snapshot at the end of a history: its live blocks, with free blocks between them.
fn snapshot_of(run: Training, annotations: Vec<Annotation>, bytes: u64) -> Snapshot {
    let mut blocks = Vec::new();
    let free = |address, size| Block { address, size, requested: 0, state: BlockState::Inactive, stack: StackId(0) };
    let mut at = BASE;
    for (address, (requested, stack)) in run.live {
        if address > at {
            blocks.push(free(at, address - at));
        }
        let size = requested.next_multiple_of(512);
        blocks.push(Block { address, size, requested, state: BlockState::Active, stack: StackId(stack) });
        at = address + size;
    }
    blocks.push(free(at, BASE + bytes - at));
    let ids: Vec<StackId> = run.trace.iter().map(|entry| entry.stack).collect();
    Snapshot {
        segments: vec![Segment {
            device: 0,
            address: BASE,
            stream: 0x5555_0000_1230,
            pool: PoolId::new(0, 3),
            zone: Zone::Large,
            expandable: true,
            asleep: 0,
            blocks,
        }],
        traces: vec![run.trace, Vec::new()],
        annotations,
        stacks: Stacks::new(ids, frames),
        totals: vec![
            DeviceTotals { total: Some(1 << 37), limit: Some(1 << 36), reserved: bytes },
            DeviceTotals::default(),
        ],
        time_us: run.time + 1,
        stream_names: Default::default(),
        block_names: Default::default(),
    }
}

fn written(write: impl Fn(&Snapshot, &mut dyn io::Write) -> io::Result<()>, snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(snapshot, &mut bytes).unwrap();
    bytes
}

// ---- reading a pickle

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Mark,
    Integer(i64),
    Real(f64),
    Boolean(bool),
    Text(String),
    Pair(Box<[Value; 2]>),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Value {
    fn get(&self, key: &str) -> &Value {
        let Value::Map(entries) = self else { panic!("{self:?} has no keys") };
        &entries.iter().find(|(name, _)| name == key).unwrap_or_else(|| panic!("no {key}")).1
    }

    fn integer(&self, key: &str) -> i64 {
        let Value::Integer(number) = self.get(key) else { panic!("{key} is not an integer") };
        *number
    }

    fn list(&self, key: &str) -> &[Value] {
        let Value::List(values) = self.get(key) else { panic!("{key} is not a list") };
        values
    }

    fn text(&self, key: &str) -> &str {
        let Value::Text(text) = self.get(key) else { panic!("{key} is not a string") };
        text
    }
}

/// A reader of the opcodes that torch's viewer supports. Containers are memoized before they are filled, so the stack
/// keeps their memo index.
fn unpickle(bytes: &[u8]) -> Value {
    let mut stack: Vec<(Value, Option<usize>)> = Vec::new();
    let mut memo: Vec<Value> = Vec::new();
    let mut at = 0;
    let take = |at: &mut usize, count: usize| {
        *at += count;
        &bytes[*at - count..*at]
    };
    let integer = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    loop {
        let opcode = take(&mut at, 1)[0];
        let value = match opcode {
            0x80 => {
                assert!(matches!(take(&mut at, 1)[0], 2..=4));
                continue;
            }
            b'.' => break,
            b'(' => Value::Mark,
            b'}' => Value::Map(Vec::new()),
            b']' => Value::List(Vec::new()),
            b'u' | b'e' => {
                let mark = stack.iter().rposition(|(value, _)| *value == Value::Mark).unwrap();
                let values: Vec<Value> = stack.drain(mark..).skip(1).map(|(value, _)| value).collect();
                assert!(opcode == b'u' || values.len() <= 1000, "{} values per APPENDS", values.len());
                let (to, place) = stack.last_mut().unwrap();
                match to {
                    Value::List(list) => list.extend(values),
                    Value::Map(map) => {
                        map.extend(values.chunks_exact(2).map(|pair| match pair {
                            [Value::Text(key), value] => (key.clone(), value.clone()),
                            other => panic!("{other:?}"),
                        }));
                    }
                    other => panic!("{other:?}"),
                }
                if let Some(place) = place {
                    memo[*place] = to.clone();
                }
                continue;
            }
            0x86 => {
                let (second, first) = (stack.pop().unwrap().0, stack.pop().unwrap().0);
                Value::Pair(Box::new([first, second]))
            }
            0x88 | 0x89 => Value::Boolean(opcode == 0x88),
            b'K' => Value::Integer(integer(take(&mut at, 1)) as i64),
            b'M' => Value::Integer(integer(take(&mut at, 2)) as i64),
            b'J' => Value::Integer(i64::from(integer(take(&mut at, 4)) as u32 as i32)),
            0x8a => {
                let count = take(&mut at, 1)[0] as usize;
                let bytes = take(&mut at, count);
                assert!(count <= 8 && bytes[count - 1] < 0x80);
                Value::Integer(integer(bytes) as i64)
            }
            b'G' => Value::Real(f64::from_be_bytes(take(&mut at, 8).try_into().unwrap())),
            0x8c | b'X' => {
                let count = integer(take(&mut at, if opcode == b'X' { 4 } else { 1 })) as usize;
                Value::Text(std::str::from_utf8(take(&mut at, count)).unwrap().to_owned())
            }
            0x94 => {
                let top = stack.last_mut().unwrap();
                top.1 = Some(memo.len());
                memo.push(top.0.clone());
                continue;
            }
            b'h' => memo[take(&mut at, 1)[0] as usize].clone(),
            b'j' => memo[integer(take(&mut at, 4)) as usize].clone(),
            other => panic!("opcode {other:#x} at {at}"),
        };
        stack.push((value, None));
    }
    assert_eq!((at, stack.len()), (bytes.len(), 1));
    stack.pop().unwrap().0
}

#[test]
fn a_pickle_has_torchs_structure() {
    let snapshot = training(3, 400);
    let read = unpickle(&written(pickle::write, &snapshot));
    let [segment] = read.list("segments") else { panic!("one segment") };
    assert_eq!(segment.integer("address"), BASE as i64);
    assert_eq!(segment.text("segment_type"), "large");
    assert_eq!(segment.get("segment_pool_id"), &Value::Pair(Box::new([Value::Integer(0), Value::Integer(3)])));
    assert_eq!((segment.get("is_expandable"), segment.integer("stream")), (&Value::Boolean(true), 0x5555_0000_1230));
    let blocks = segment.list("blocks");
    assert_eq!(blocks.len(), snapshot.segments[0].blocks.len());
    assert_eq!(blocks.iter().map(|block| block.integer("size")).sum::<i64>(), segment.integer("total_size"));
    let live = blocks.iter().filter(|block| block.text("state") == "active_allocated");
    assert_eq!(live.map(|block| block.integer("size")).sum::<i64>(), segment.integer("allocated_size"));
    assert_eq!(blocks[0].list("frames").len(), 3);
    assert_eq!(blocks[0].list("frames")[0].text("name"), "layer<1>::step_0(é)");
    assert_eq!(blocks[0].list("frames")[2].integer("line"), 21);

    let traces = read.list("device_traces");
    let Value::List(trace) = &traces[0] else { panic!("a list") };
    assert_eq!((traces.len(), trace.len(), &traces[1]), (2, snapshot.traces[0].len(), &Value::List(Vec::new())));
    for (read, entry) in trace.iter().zip(&snapshot.traces[0]) {
        assert_eq!(read.text("action"), entry.action.name());
        let address = if entry.action == Action::Oom { "device_free" } else { "addr" };
        assert_eq!((read.integer(address), read.integer("size")), (entry.address as i64, entry.size as i64));
        assert_eq!((read.integer("time_us"), read.integer("stream")), (entry.time_us as i64, 0));
        assert_eq!(read.list("frames").len(), if entry.stack.0 == 0 { 0 } else { 3 });
        assert_eq!(read.text("user_metadata"), entry.metadata.as_deref().unwrap_or_default());
        let Value::Map(keys) = read else { panic!("a map") };
        let name = keys.iter().find(|(key, _)| key == "name").map(|(_, name)| name.clone());
        assert_eq!(name, entry.name.as_deref().map(|name| Value::Text(name.into())));
    }
    assert_eq!(read.list("external_annotations").len(), 6);
    assert_eq!(read.list("external_annotations")[1].text("stage"), "END");
    let settings = read.get("allocator_settings");
    assert_eq!(settings.integer("max_split_size"), -1);
    assert_eq!(settings.get("roundup_power2_divisions").integer("32768"), 0);
    assert_eq!(read.get("plinth").list("devices")[0].integer("limit"), 1 << 36);
}

#[test]
fn numbers_of_every_length_are_read_back() {
    let mut snapshot = training(0, 1);
    let bounds = [7, 8, 15, 16, 31, 32, 39, 40, 47, 55, 62].map(|bits| 1_u64 << bits);
    let numbers: Vec<u64> = bounds.into_iter().flat_map(|bound| [bound - 1, bound, bound + 1]).collect();
    let entry = snapshot.traces[0][0].clone();
    snapshot.traces[0] = numbers.iter().map(|number| Entry { size: *number, ..entry.clone() }).collect();
    let read = unpickle(&written(pickle::write, &snapshot));
    let Value::List(trace) = &read.list("device_traces")[0] else { panic!("a list") };
    let read: Vec<u64> = trace.iter().map(|entry| entry.integer("size") as u64).collect();
    assert_eq!(read, numbers);
}

#[test]
fn repeated_values_are_references() {
    let entries = |bytes: usize, snapshot: &Snapshot| bytes / snapshot.traces[0].len();
    let snapshot = training(50, 100);
    let pickled = written(pickle::write, &snapshot).len();
    assert!(entries(pickled, &snapshot) < 120, "{pickled} bytes");
    let shown = written(page::write, &snapshot).len() - written(page::write, &training(0, 100)).len();
    assert!(entries(shown, &snapshot) < 30, "{shown} bytes");
}

#[test]
fn strings_are_escaped_in_json_and_in_a_page() {
    let mut quoted = Vec::new();
    json::quote(&mut quoted, "a\"b\\c\n\t\u{0}</script>é\u{1f600}").unwrap();
    assert_eq!(String::from_utf8(quoted).unwrap(), r#""a\"b\\c\n\u0009\u0000\u003c/script>é😀""#);
    let page = String::from_utf8(written(page::write, &training(1, 2))).unwrap();
    // The end tags of the three scripts, and no other.
    assert_eq!(page.matches("</script").count(), 3);
    assert!(page.contains(r#"/home/model/\u003c/script>/net \"1\".cpp"#));
    assert!(!page.contains("http:") && !page.contains("https:"));
}

#[test]
fn the_extension_selects_the_format() {
    for (name, format) in [
        ("a.pickle", Format::Pickle),
        ("a", Format::Pickle),
        ("json", Format::Pickle),
        ("a.b.JSON", Format::Json),
        ("/x.json/a.html", Format::Html),
        ("a.HTM", Format::Html),
    ] {
        assert_eq!(Format::of(Path::new(name)), format, "{name}");
    }
}

// ---- files

/// The directory of a test, removed when the test ends.
struct Folder(temporary::Folder);

impl Folder {
    fn new() -> Folder {
        Folder(temporary::folder().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_file_is_replaced_when_it_is_complete() {
    let folder = Folder::new();
    // The longest name that a file can have.
    let name = "n".repeat(255);
    let path = folder.path().join(&name);
    fs::write(&path, "old").unwrap();
    symlink(&name, folder.path().join("link")).unwrap();
    let failure = file::replace(&folder.path().join("link"), |out| {
        out.write_all(b"half")?;
        out.flush()?;
        assert_eq!(folder.names().len(), 3);
        Err(io::Error::other("the disk is full"))
    });
    let message = failure.unwrap_err().to_string();
    assert!(message.contains("link: the disk is full"), "{message}");
    assert_eq!((fs::read(&path).unwrap(), folder.names().len()), (b"old".to_vec(), 2));
    file::replace(&folder.path().join("link"), |out| out.write_all(b"new")).unwrap();
    assert_eq!((fs::read(&path).unwrap(), folder.names()), (b"new".to_vec(), vec!["link".into(), name]));
    assert!(fs::symlink_metadata(folder.path().join("link")).unwrap().is_symlink());
}

#[test]
fn a_file_keeps_its_permissions() {
    let folder = Folder::new();
    let path = folder.path().join("snapshot");
    fs::write(&path, "old").unwrap();
    for mode in [0o600, 0o666, 0o640] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        file::replace(&path, |out| {
            let modes =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().mode() & 0o777);
            assert_eq!(modes.collect::<Vec<_>>(), [mode, mode]);
            out.write_all(b"new")
        })
        .unwrap();
        assert_eq!((fs::metadata(&path).unwrap().mode() & 0o777, fs::read(&path).unwrap()), (mode, b"new".to_vec()));
    }
}

#[test]
fn a_dangling_link_is_preserved() {
    let folder = Folder::new();
    let link = |to: &Path, name: &str| symlink(to, folder.path().join(name)).unwrap();
    fs::create_dir(folder.path().join("inside")).unwrap();
    link(Path::new("inside/second"), "first");
    link(&folder.path().join("file"), "inside/second");
    file::replace(&folder.path().join("first"), |out| out.write_all(b"text")).unwrap();
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"text");
    for name in ["first", "inside/second"] {
        assert!(fs::symlink_metadata(folder.path().join(name)).unwrap().is_symlink(), "{name}");
    }
    // A cycle of links has no target.
    link(Path::new("there"), "here");
    link(Path::new("here"), "there");
    file::replace(&folder.path().join("here"), |out| out.write_all(b"text")).unwrap();
    assert!(fs::symlink_metadata(folder.path().join("here")).unwrap().is_file());
}

#[test]
fn links_of_other_users_in_shared_folders_are_refused() {
    let folder = Folder::new();
    let path = folder.path().join("snapshot");
    fs::write(folder.path().join("mine"), "mine").unwrap();
    symlink("mine", &path).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    file::replace(&path, |out| out.write_all(b"own link")).unwrap();
    // Only root can make a link of another user.
    if std::os::unix::fs::lchown(&path, Some(65534), None).is_err() {
        return;
    }
    let error = file::replace(&path, |out| out.write_all(b"another's link")).unwrap_err();
    assert!(error.message().contains("65534") && error.message().contains("snapshot"), "{error}");
    assert_eq!(fs::read(folder.path().join("mine")).unwrap(), b"own link");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    file::replace(&path, |out| out.write_all(b"not shared")).unwrap();
}

#[test]
fn errors_name_the_file() {
    let folder = Folder::new();
    for path in [folder.path().join("no/such"), folder.path().to_owned(), PathBuf::from("/"), PathBuf::new()] {
        let error = file::replace(&path, |out| out.write_all(b"text")).unwrap_err();
        assert_eq!(error.status(), crate::status::Status::SYSTEM, "{error}");
        assert!(error.message().contains(&*path.to_string_lossy()), "{error}");
    }
    assert_eq!(folder.names(), Vec::<String>::new());
    // A target that is not a regular file is written to directly, and reports its own error.
    #[cfg(target_os = "linux")]
    {
        let error = file::replace(Path::new("/dev/full"), |out| out.write_all(b"text")).unwrap_err();
        assert!(error.message().contains("No space left"), "{error}");
        file::replace(Path::new("/dev/null"), |out| out.write_all(b"text")).unwrap();
    }
}

/// Measures a million entries in every format: `cargo test --release --lib a_million -- --ignored --nocapture`. Keeps
/// the files.
#[test]
#[ignore = "takes seconds; for measurements"]
fn a_million_entries_are_written_in_seconds() {
    let snapshot = training(8, 60);
    println!("{} entries", snapshot.traces[0].len());
    for name in ["big.pickle", "big.json", "big.html"] {
        let path = std::env::temp_dir().join(format!("plinth-{name}"));
        let begun = Instant::now();
        file::replace(&path, |out| match Format::of(&path) {
            Format::Pickle => pickle::write(&snapshot, out),
            Format::Json => json::write(&snapshot, out),
            Format::Html => page::write(&snapshot, out),
        })
        .unwrap();
        println!("{}: {} bytes in {:?}", path.display(), fs::metadata(&path).unwrap().len(), begun.elapsed());
    }
}
