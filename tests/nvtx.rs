//! The NVTX calls that a profiler receives. Each case runs in its own process, with a tool that the C compiler builds.

use plinth::internal::ffi::{
    allocator::{plinth_caching_allocator_alloc, plinth_caching_allocator_delete},
    names::{plinth_memory_set_name, plinth_stream_set_name},
    nvtx::*,
    stream::plinth_stream_create,
};
use std::{
    ffi::CStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    ptr,
};

const CHILD: &str = "PLINTH_TEST_CHILD";

/// A tool that prints the calls that it receives. It follows NVTX's documentation and shares no code with the library.
const TOOL: &str = r#"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct attributes { uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color; int32_t payload_type,
  reserved; int64_t payload; int32_t message_type; const char *message; };
struct callbacks { size_t size; int (*table)(int module, void ****table, unsigned *size); };
struct version { size_t size; uint32_t version, reserved; void (*set)(uint32_t); };
static int depth;
static uint64_t ranges;
static void print(const char *what, void *domain, const struct attributes *a) {
  printf("call: %s in %s: %s", what, domain ? (const char *)domain : "default", a->message);
  if (a->version != 3 || a->size != sizeof *a || a->message_type != 1) printf(" WRONG");
  if (a->category) printf(" category %u", a->category);
  if (a->color_type) printf(" color %08x", a->color);
  if (a->payload_type) printf(" payload %d %lld", a->payload_type, (long long)a->payload);
  printf("\n");
}
static void mark(void *d, const struct attributes *a) { print("mark", d, a); }
static uint64_t start(void *d, const struct attributes *a) { print("start", d, a); return 100 + ranges++; }
static void end(void *d, uint64_t id) { printf("call: end in %s: %d\n", d ? (char *)d : "default", (int)id); }
static int push(void *d, const struct attributes *a) { print("push", d, a); return depth++; }
static int pop(void *d) { printf("call: pop in %s\n", d ? (char *)d : "default"); return --depth; }
static void category(void *d, uint32_t number, const char *name) { printf("call: category %u: %s\n", number, name); }
static void *create(const char *name) { printf("call: domain %s\n", name); return "mine"; }
static void destroy(void *d) { printf("call: destroy of %s\n", (char *)d); }
static void thread(uint32_t id, const char *name) { printf("call: thread %s\n", name); }
struct resource { uint16_t version, size; int32_t kind; uint64_t address; int32_t message_type; const char *message; };
static uint64_t first_resource;
static void *resource(void *d, const struct resource *r) {
  if (!first_resource) first_resource = r->address;
  printf("call: resource %s%s\n", r->message, r->address == first_resource ? "" : " elsewhere");
  if (r->version != 3 || r->size != sizeof *r || r->kind != 0x10001 || r->message_type != 1) printf("call: WRONG\n");
  return strdup(r->message);
}
static void end_resource(char *name) { printf("call: end of resource %s\n", name); free(name); }
static void stream(void *handle, const char *name) { printf("call: stream %s%s\n", name, handle ? "" : " WRONG"); }
static void core_mark(const struct attributes *a) { print("mark", NULL, a); }
static uint64_t core_start(const struct attributes *a) { return start(NULL, a); }
static void core_end(uint64_t id) { end(NULL, id); }
static int core_push(const struct attributes *a) { return push(NULL, a); }
static int core_pop(void) { return pop(NULL); }
static void core_category(uint32_t number, const char *name) { category(NULL, number, name); }
static struct attributes of(const char *text) { struct attributes a = {3, sizeof a}; a.message_type = 1; a.message = text; return a; }
static void text_mark(const char *text) { struct attributes a = of(text); core_mark(&a); }
static uint64_t text_start(const char *text) { struct attributes a = of(text); return core_start(&a); }
static int text_push(const char *text) { struct attributes a = of(text); return core_push(&a); }
enum { EVERYTHING, ONLY_CORE, ONLY_TEXTS, NOTHING };
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
  const struct callbacks *callbacks = export_table(1);
  const struct version *version = export_table(3);
  void ***core, ***cuda, ***domains; unsigned cores, calls, places;
  if (export_table(2) || callbacks->size != sizeof *callbacks || version->version != 3) return 0;
  version->set(3);
  if (!callbacks->table(1, &core, &cores) || !callbacks->table(5, &domains, &places)) return 0;
  if (cores != 16 || places != 16 || !callbacks->table(2, &cuda, &calls) || calls < 6) return 0;
  if (FUNCTIONS == ONLY_CORE || FUNCTIONS == ONLY_TEXTS) {
    const int texts = FUNCTIONS == ONLY_TEXTS;
    *core[1 + texts] = texts ? (void *)text_mark : (void *)core_mark;
    *core[4 + texts] = texts ? (void *)text_start : (void *)core_start;
    *core[8 + texts] = texts ? (void *)text_push : (void *)core_push;
    *core[7] = (void *)core_end; *core[11] = (void *)core_pop; *core[12] = (void *)core_category;
  }
  if (FUNCTIONS != EVERYTHING) return ACCEPT;
  *cuda[5] = (void *)stream; *domains[6] = (void *)resource; *domains[7] = (void *)end_resource;
  *core[14] = (void *)thread;
  *domains[1] = (void *)mark; *domains[2] = (void *)start; *domains[3] = (void *)end; *domains[4] = (void *)push;
  *domains[5] = (void *)pop; *domains[8] = (void *)category; *domains[12] = (void *)create; *domains[14] = (void *)destroy;
  return ACCEPT;
}
"#;

/// Builds the tool, with the functions of a set, or refusing to work.
fn build_tool(name: &str, functions: &str, accept: bool) -> PathBuf {
    build(name, &TOOL.replace("ACCEPT", if accept { "1" } else { "0" }).replace("FUNCTIONS", functions))
}

fn build(name: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let (file, library) = (folder.join("tool.c"), folder.join("libtool.so"));
    fs::write(&file, source).unwrap();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new().target(&target).host(&target).opt_level(0).cargo_metadata(false).get_compiler();
    let status = compiler.to_command().args(["-w", "-shared", "-fPIC", "-o"]).args([&library, &file]).status();
    assert!(status.unwrap().success());
    library
}

/// Not a test itself: the entry point of the processes that the tests start.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let text = |text: &CStr| text.as_ptr();
    let event = |message: &CStr| plinth_nvtx_event_t {
        struct_size: size_of::<plinth_nvtx_event_t>(),
        message: message.as_ptr(),
        category: 7,
        color: 0xFF00_80FF,
        payload: -3,
        has_color: true,
        has_payload: true,
    };
    let (mut depth, mut range, mut active, mut domain) = (-1, 0, false, ptr::null_mut());
    // SAFETY: every pointer is NULL where that is allowed, or a live local.
    unsafe {
        assert_eq!(plinth_nvtx_is_active(&mut active), 0);
        println!("call: active {active}");
        assert_eq!(plinth_nvtx_mark(text(c"here")), 0);
        assert_eq!(plinth_nvtx_range_push(text(c"outer"), &mut depth), 0);
        assert_eq!(depth, 0);
        assert_eq!(plinth_nvtx_range_push(text(c"inner"), &mut depth), 0);
        assert_eq!(depth, 1);
        assert_eq!(plinth_nvtx_range_pop(&mut depth), 0);
        assert_eq!(depth, 1);
        assert_eq!(plinth_nvtx_range_pop(ptr::null_mut()), 0);
        assert_eq!(plinth_nvtx_range_start(text(c"long"), &mut range), 0);
        // A tool may have no function for ranges.
        assert!(active || range == 0);
        let number = range;
        std::thread::spawn(move || assert_eq!(plinth_nvtx_range_end(number), 0)).join().unwrap();
        assert_eq!(plinth_nvtx_name_thread(text(c"worker")), 0);
        assert_eq!(plinth_nvtx_domain_create(text(c"solver"), &mut domain), 0);
        assert!(active || domain.is_null());
        assert_eq!(plinth_nvtx_name_category(domain, 7, text(c"loads")), 0);
        assert_eq!(plinth_nvtx_name_category(domain, 0, text(c"none")), 1);
        assert_eq!(plinth_nvtx_domain_mark(domain, &event(c"flag")), 0);
        assert_eq!(plinth_nvtx_domain_range_push(domain, &event(c"step"), &mut depth), 0);
        assert_eq!(plinth_nvtx_domain_range_pop(domain, &mut depth), 0);
        assert_eq!(depth, 0);
        assert_eq!(plinth_nvtx_domain_range_start(domain, &event(c"epoch"), &mut range), 0);
        assert_eq!(plinth_nvtx_domain_range_end(domain, range), 0);
        assert_eq!(plinth_nvtx_domain_destroy(domain), 0);
        assert_eq!(plinth_nvtx_mark(ptr::null()), 2);
        assert_eq!(plinth_nvtx_domain_mark(domain, &plinth_nvtx_event_t { struct_size: 8, ..event(c"old") }), 1);
        // Ranges of a stream, and annotation of the library's own calls.
        let stream = ptr::null_mut();
        assert_eq!(plinth_nvtx_device_range_start(text(c"kernel"), stream, &mut range), 0);
        assert_eq!(plinth_nvtx_device_range_end(range, stream), 0);
        assert_eq!(plinth::internal::ffi::device::plinth_synchronize(0), 0);
        if active {
            assert_eq!(plinth_nvtx_device_range_end(range, stream), 4, "the range has ended");
        }
        assert_eq!(plinth_nvtx_device_range_end(0, stream), 0);
        assert_eq!((plinth_profiler_start(), plinth_profiler_stop()), (0, 0));
        // Names of streams and of memory. A default stream has no handle that a tool could know.
        let (mut named, mut memory) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(plinth_stream_create(0, 0, &mut named), 0);
        assert_eq!(plinth_stream_set_name(named, text(c"copies")), 0);
        assert_eq!(plinth_stream_set_name(stream, text(c"main")), 0);
        assert_eq!(plinth_caching_allocator_alloc(4096, 0, named, &mut memory), 0);
        assert_eq!(plinth_memory_set_name(memory.byte_add(100), text(c"weights")), 0);
        assert_eq!(plinth_memory_set_name(memory, text(c"biases")), 0);
        assert_eq!(plinth_caching_allocator_delete(memory), 0);
        assert_eq!(plinth_nvtx_annotate_calls(true), 0);
        assert_eq!(plinth::internal::ffi::device::plinth_set_device(1), 0);
        assert_eq!(plinth::internal::ffi::device::plinth_set_device(99), 3);
        assert_eq!(plinth_nvtx_annotate_calls(false), 0);
        assert_eq!(plinth::internal::ffi::device::plinth_set_device(0), 0);
        assert_eq!(plinth_nvtx_range_pop(ptr::null_mut()), 1, "no range is open");
        libc::fflush(ptr::null_mut());
    }
}

/// Runs the child with a tool, and returns the calls that the tool received.
fn received(tool: Option<&Path>) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1").env("PLINTH_DEVICE", "host");
    match tool {
        Some(path) => command.env("NVTX_INJECTION64_PATH", path),
        None => command.env_remove("NVTX_INJECTION64_PATH"),
    };
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.lines().filter_map(|line| line.find("call: ").map(|at| line[at + 6..].to_owned())).collect()
}

#[test]
fn a_tool_receives_all_calls_in_order() {
    let tool = build_tool("nvtx_tool", "EVERYTHING", true);
    let calls = sorted(received(Some(&tool)));
    let with = "category 7 color ff0080ff payload 2 -3";
    let expected = [
        "active true",
        "mark in default: here",
        "push in default: outer",
        "push in default: inner",
        "pop in default",
        "pop in default",
        "start in default: long",
        "end in default: 100",
        "thread worker",
        "domain solver",
        "category 7: loads",
        &format!("mark in mine: flag {with}"),
        &format!("push in mine: step {with}"),
        "pop in mine",
        &format!("start in mine: epoch {with}"),
        "end in mine: 101",
        "destroy of mine",
        "start in default: kernel",
        "end in default: 102",
        "stream copies",
        "resource weights",
        "end of resource weights",
        "resource biases",
        "end of resource biases",
        "push in default: plinth_set_device",
        "pop in default",
        "push in default: plinth_set_device",
        "pop in default",
        "pop in default",
    ];
    assert_eq!(calls, expected);
}

/// Sorts the program's own line before those of the tool, which are buffered separately.
fn sorted(mut calls: Vec<String>) -> Vec<String> {
    calls.sort_by_key(|line| line.as_str() != "active true");
    calls
}

/// A tool need not have the functions with domains. It then receives all events in the default domain.
#[test]
fn a_tool_may_have_some_functions_only() {
    let nothing = build_tool("nvtx_nothing", "NOTHING", true);
    assert_eq!(received(Some(&nothing)), ["active true"]);
    for (functions, with) in [("ONLY_CORE", " category 7 color ff0080ff payload 2 -3"), ("ONLY_TEXTS", "")] {
        let tool = build_tool(&format!("nvtx_{functions}"), functions, true);
        let expected = [
            "active true",
            "mark in default: here",
            "push in default: outer",
            "push in default: inner",
            "pop in default",
            "pop in default",
            "start in default: long",
            "end in default: 100",
            "category 7: loads",
            &format!("mark in default: flag{with}"),
            &format!("push in default: step{with}"),
            "pop in default",
            &format!("start in default: epoch{with}"),
            "end in default: 101",
            "start in default: kernel",
            "end in default: 102",
            "push in default: plinth_set_device",
            "pop in default",
            "push in default: plinth_set_device",
            "pop in default",
            "pop in default",
        ];
        assert_eq!(sorted(received(Some(&tool))), expected, "{functions}");
    }
}

#[test]
fn without_a_tool_all_calls_work() {
    let refusing = build_tool("nvtx_refusing", "EVERYTHING", false);
    let other = build("nvtx_other", "int unrelated;");
    for tool in [None, Some(Path::new("/nonexistent/libtool.so")), Some(other.as_path()), Some(refusing.as_path())] {
        assert_eq!(received(tool), ["active false"], "{tool:?}");
    }
}

#[test]
fn the_variable_may_be_empty() {
    assert_eq!(received(Some(Path::new(""))), ["active false"]);
}
