//! Checks the headers against the conventions of docs/api.md: order of arguments, names of callbacks, sizes of structs,
//! names of functions that create, destroy, get and set. Checks that the tests exist that docs/security.md and docs/reliability.md name.
//!
//! The exceptions are listed here, each with its reason. An exception that no longer applies fails the test.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Structs without `struct_size`, because they never change.
const FIXED: &[(&str, &str)] = &[
    ("DLDataType", "DLPack"),
    ("DLDevice", "DLPack"),
    ("DLTensor", "DLPack"),
    ("plinth_graph_context_t", "saved state, which only the library reads"),
    ("plinth_host_stat_t", "a part of plinth_host_memory_stats_t"),
    ("plinth_host_time_t", "a part of plinth_host_memory_stats_t"),
    ("plinth_memory_stat_by_pool_t", "a part of plinth_memory_stats_t"),
    ("plinth_memory_stat_t", "a part of plinth_memory_stats_t"),
    ("plinth_philox_state_t", "passed to kernels by value"),
    ("plinth_pool_id_t", "an identifier, which is compared and passed by value"),
    ("plinth_stream_context_t", "saved state, which only the library reads"),
];

/// Getters without a setter, which have torch's names.
const TORCH_GETTERS: &[&str] = &[
    "plinth_get_allocator_backend",
    "plinth_get_arch_list",
    "plinth_get_device_capability",
    "plinth_get_device_name",
    "plinth_get_device_properties",
    "plinth_get_gencode_flags",
    "plinth_mem_get_info",
];

/// Functions that release something by another verb, because they have the names of torch or of another library.
const OTHER_RELEASES: &[&str] = &[
    "plinth_caching_allocator_delete",
    "plinth_rmm_deallocate",
    "plinth_jiterator_destroy_jit_fn", // for torch's create_jit_fn
    "plinth_ipc_close",                // for receive and import, which open memory of another process
    "plinth_pluggable_release_pool",   // torch's hook of that name
    "plinth_release_pool",             // torch's releasePool: ends the use of a pool that others may still use
    "plinth_stream_unregister",        // for from_external, which registers a stream
];

/// Functions with the signatures of other libraries.
const FOREIGN: &[&str] = &["plinth_alloc", "plinth_cupy_", "plinth_free", "plinth_pluggable_", "plinth_rmm_"];

struct Function {
    name: String,
    parameters: Vec<String>,
}

#[derive(Default)]
struct Headers {
    functions: Vec<Function>,
    /// The fields by name.
    structs: BTreeMap<String, Vec<String>>,
    /// The parameters by name.
    callbacks: BTreeMap<String, Vec<String>>,
    /// The types of opaque handles, such as plinth_event_t.
    handles: BTreeSet<String>,
    macros: BTreeSet<String>,
    comments: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Splits at commas outside of parentheses.
fn split(parameters: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in parameters.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(letter);
    }
    let parts = parts.into_iter().map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    parts.filter(|part| !part.is_empty() && part != "void").collect()
}

/// Returns the last identifier of a declaration.
fn declared_name(declaration: &str) -> &str {
    let declaration = declaration.split('[').next().unwrap().trim_end();
    declaration.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap()
}

impl Headers {
    fn read() -> Headers {
        let mut headers = Headers::default();
        let mut files: Vec<_> =
            fs::read_dir(root().join("include/plinth")).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            headers.add(&fs::read_to_string(file).unwrap());
        }
        assert!(headers.functions.len() > 300 && headers.structs.len() > 30 && headers.callbacks.len() > 10);
        headers
    }

    fn add(&mut self, text: &str) {
        let mut code = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("/*") {
            code += before;
            let (comment, after) = after.split_once("*/").unwrap();
            self.comments.push(comment.to_owned());
            rest = after;
        }
        code += rest;
        let mut plain = String::new();
        let mut continued = false;
        for line in code.lines() {
            let directive = continued || line.starts_with('#');
            if let Some(name) = line.strip_prefix("#define ") {
                self.macros.insert(name.split([' ', '(']).next().unwrap().to_owned());
            }
            continued = directive && line.ends_with('\\');
            if !directive && !line.starts_with("extern \"C\"") && !line.starts_with("}  // extern") {
                plain += line.split("//").next().unwrap();
                plain.push('\n');
            }
        }
        let (mut statement, mut depth) = (String::new(), 0);
        for letter in plain.chars() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ';' if depth == 0 => {
                    self.add_statement(&statement.split_whitespace().collect::<Vec<_>>().join(" "));
                    statement.clear();
                    continue;
                }
                _ => {}
            }
            statement.push(letter);
        }
    }

    fn add_statement(&mut self, statement: &str) {
        if let Some(body) = statement.strip_prefix("typedef struct ")
            && let Some((name, fields)) = body.split_once('{')
        {
            let fields = fields[..fields.rfind('}').unwrap()].split(';').map(str::trim);
            let fields = fields.filter(|field| !field.is_empty()).map(str::to_owned).collect();
            self.structs.insert(name.trim().to_owned(), fields);
        } else if let Some(body) = statement.strip_prefix("typedef ") {
            if let Some((_, callback)) = body.split_once("(*") {
                let (name, parameters) = callback.split_once(")(").unwrap();
                self.callbacks.insert(name.to_owned(), split(&parameters[..parameters.rfind(')').unwrap()]));
            } else if body.contains('*') {
                self.handles.insert(declared_name(body).to_owned());
            }
        } else if let Some((before, rest)) = statement.split_once('(') {
            let name = declared_name(before).to_owned();
            let parameters = split(&rest[..rest.rfind(')').unwrap()]);
            self.functions.push(Function { name, parameters });
        }
    }

    fn has(&self, name: &str) -> bool {
        self.functions.iter().any(|function| function.name == name)
    }

    /// Returns whether a parameter is an output: a pointer to something that is neither const nor an operand, such as
    /// memory.
    fn is_output(&self, parameter: &str) -> bool {
        let is_read = parameter.starts_with("const ") && !parameter.starts_with("const char **");
        let is_memory = parameter.starts_with("void *") && !parameter.starts_with("void **");
        parameter.contains('*') && !is_read && !is_memory && !parameter.starts_with("DLTensor *")
    }
}

fn is_foreign(name: &str) -> bool {
    !name.starts_with("plinth_pluggable_allocator_")
        && FOREIGN.iter().any(|prefix| name == *prefix || prefix.ends_with('_') && name.starts_with(prefix))
}

/// Checks that the list of violations of a rule is empty.
fn assert_none(wrong: Vec<String>, rule: &str) {
    assert!(wrong.is_empty(), "{rule} (docs/api.md):\n{}", wrong.join("\n"));
}

#[test]
fn outputs_are_last() {
    let headers = Headers::read();
    let mut wrong = Vec::new();
    for function in headers.functions.iter().filter(|function| !is_foreign(&function.name)) {
        let mut outputs = false;
        for parameter in &function.parameters {
            let name = declared_name(parameter);
            // The capacity of an output array may follow it.
            let capacity = parameter.starts_with("size_t ") || function.name == "plinth_get_rng_state_all";
            if outputs
                && !headers.is_output(parameter)
                && !(capacity && ["capacity", "count", "body_count"].contains(&name))
            {
                wrong.push(format!("{}: {parameter} follows an output", function.name));
            }
            outputs |= headers.is_output(parameter) && function.name != "plinth_ipc_export_free";
        }
    }
    assert_none(wrong, "outputs must follow all inputs");
}

/// The stream in which a call works is its last input. In the calls below the stream is the subject of the call instead.
#[test]
fn the_stream_is_the_last_input() {
    const STREAM_IS_SUBJECT: &[&str] = &[
        "plinth_begin_allocate_current_stream_to_pool", // routes the requests for the stream
        "plinth_graph_begin", // torch.cuda.graph(cuda_graph, pool, stream, capture_error_mode)
        "plinth_launch_host_function", // the callback and its context are the last inputs
        "plinth_sanitizer_wait_stream",
        "plinth_stream_record_event",
        "plinth_stream_set_name",
        "plinth_stream_wait_event",
        "plinth_stream_wait_stream",
    ];
    let headers = Headers::read();
    let mut exceptions = BTreeSet::new();
    for function in headers.functions.iter().filter(|function| !is_foreign(&function.name)) {
        let mut inputs = function.parameters.iter().filter(|parameter| !headers.is_output(parameter));
        if inputs.any(|parameter| parameter == "plinth_stream_t stream") && inputs.next().is_some() {
            exceptions.insert(function.name.as_str());
        }
    }
    assert_eq!(
        exceptions,
        STREAM_IS_SUBJECT.iter().copied().collect(),
        "the stream must be the last input (docs/api.md)"
    );
}

#[test]
fn callbacks_have_one_suffix_and_end_with_their_context() {
    let headers = Headers::read();
    let mut wrong = Vec::new();
    for (name, parameters) in &headers.callbacks {
        if !name.ends_with("_callback_t") {
            wrong.push(format!("{name} does not end in _callback_t"));
        }
        if parameters.last().is_none_or(|last| last != "void *context") {
            wrong.push(format!("the last parameter of {name} is not void *context"));
        }
    }
    for function in &headers.functions {
        let parameters = &function.parameters;
        for (index, parameter) in parameters.iter().enumerate() {
            if parameter.contains("_callback_t ")
                && parameters.get(index + 1).is_none_or(|next| next != "void *context")
            {
                wrong.push(format!("{}: the callback is not followed by its context", function.name));
            }
        }
    }
    assert_none(wrong, "callbacks");
}

#[test]
fn structs_state_their_size_and_have_an_initializer() {
    let headers = Headers::read();
    let fixed: BTreeSet<&str> = FIXED.iter().map(|(name, _)| *name).collect();
    let mut wrong = Vec::new();
    for (name, fields) in &headers.structs {
        let initializer = name.trim_end_matches("_t").to_uppercase() + "_INIT";
        let sized = fields[0] == "size_t struct_size";
        if sized == fixed.contains(name.as_str()) {
            wrong.push(format!("{name}: needs either struct_size, or an entry in FIXED with a reason"));
        }
        if sized && !headers.macros.contains(&initializer) {
            wrong.push(format!("{name} has no {initializer}"));
        }
        // A nested struct cannot grow.
        for field in fields {
            let field = field.trim_start_matches("struct ");
            let inner = field.split([' ', '[']).next().unwrap();
            if !field.contains('*') && headers.structs.contains_key(inner) && !fixed.contains(inner) {
                wrong.push(format!("{name} contains {inner}, which grows: {field}"));
            }
        }
    }
    for name in fixed {
        if !headers.structs.contains_key(name) {
            wrong.push(format!("{name} is not a struct of the headers"));
        }
    }
    assert_none(wrong, "structs");
}

#[test]
fn handles_are_destroyed_by_destroy() {
    // These objects belong to the driver.
    const BORROWED: &[&str] = &["plinth_graph_node_t", "plinth_stream_t"];
    let headers = Headers::read();
    let mut wrong = Vec::new();
    for handle in headers.handles.iter().filter(|handle| !BORROWED.contains(&handle.as_str())) {
        let destroy = format!("{}_destroy", handle.trim_end_matches("_t"));
        if handle != "plinth_jit_function_t" && !headers.has(&destroy) {
            wrong.push(format!("there is no {destroy} for {handle}"));
        }
    }
    assert!(headers.handles.len() > 10, "{:?}", headers.handles);
    assert_none(wrong, "objects must be released by destroy");
}

/// A function whose name contains a release verb has a counterpart with one of the creation verbs.
#[test]
fn every_release_has_its_counterpart() {
    const PAIRS: &[(&str, &[&str])] = &[
        ("destroy", &["create", "make", "compile", "load", "init_rank"]),
        ("free", &["alloc", "malloc", "export"]),
        ("close", &["open"]),
        ("release", &["acquire"]),
        ("unregister", &["register"]),
        ("detach", &["attach"]),
        ("remove", &["add"]),
        ("disable", &["enable"]),
        ("stop", &["start"]),
        ("exit", &["enter"]),
        ("pop", &["push", "set"]),
        ("end", &["begin", "start"]),
    ];
    // Created by functions whose names are torch's, NCCL's or CUDA's.
    const CREATED_BY_OTHERS: &[&str] = &[
        "plinth_communicator_destroy",
        "plinth_graphed_callable_destroy",
        "plinth_kernel_destroy",
        "plinth_string_free",
    ];
    // "free" is an adjective in these names.
    const FREE_MEMORY: &[&str] = &["plinth_add_free_memory_callback", "plinth_remove_free_memory_callback"];
    let headers = Headers::read();
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<&str> = OTHER_RELEASES.iter().copied().collect();
    for name in headers.functions.iter().map(|function| function.name.as_str()) {
        let words: Vec<&str> = name.split('_').collect();
        for (release, makers) in PAIRS {
            let Some(index) = words.iter().position(|word| word == release) else { continue };
            let partner = |maker: &str| {
                let mut words = words.clone();
                words[index] = maker;
                words.dedup(); // plinth_ipc_export, for plinth_ipc_export_free
                headers.has(&words.join("_"))
            };
            let excepted = [OTHER_RELEASES, CREATED_BY_OTHERS].iter().any(|list| list.contains(&name))
                || *release == "free" && FREE_MEMORY.contains(&name);
            if !excepted && !makers.iter().any(|maker| partner(maker)) {
                wrong.push(format!("{name} has no counterpart with {makers:?}"));
            }
        }
        if words.iter().any(|word| ["delete", "dispose", "drop", "finalize", "deallocate", "dealloc"].contains(word))
            && !OTHER_RELEASES.contains(&name)
        {
            wrong.push(format!("{name}: this verb is not used for releases"));
        }
        unused.remove(name);
    }
    wrong.extend(unused.into_iter().map(|name| format!("{name} does not exist")));
    assert_none(wrong, "each kind of object must be released by one verb");
}

#[test]
fn values_with_a_setter_are_read_by_get() {
    let headers = Headers::read();
    let mut wrong = Vec::new();
    for function in &headers.functions {
        let name = function.name.as_str();
        // Like cuModuleGetFunction, these functions return a handle.
        if name.contains("_get_") && !name.contains("_context_") {
            let setter = name.replacen("_get_", "_set_", 1);
            if !headers.has(&setter) && !TORCH_GETTERS.contains(&name) && name != "plinth_kernel_module_get_kernel" {
                wrong.push(format!("{name} has no {setter}: its name is {}", name.replacen("_get_", "_", 1)));
            }
        }
        if name.contains("_set_") {
            let reader = name.replacen("_set_", "_", 1);
            if headers.has(&reader) {
                wrong.push(format!("{reader}: it has a setter, so its name is {}", name.replacen("_set_", "_get_", 1)));
            }
        }
    }
    assert_none(wrong, "getters");
}

/// docs/stream.md says for each call that takes a stream on which device it looks for it.
#[test]
fn the_table_of_streams_lists_each_call_once() {
    let takes_stream = |function: &&Function| {
        let is_stream = |parameter: &String| {
            parameter.contains("plinth_stream_t") && (!parameter.contains('*') || parameter.starts_with("const "))
        };
        function.parameters.iter().any(is_stream)
    };
    let headers = Headers::read();
    let expected: Vec<&str> =
        headers.functions.iter().filter(takes_stream).map(|function| function.name.as_str()).collect();
    let page = fs::read_to_string(root().join("docs/stream.md")).unwrap();
    let rows = page.split_once("| calls | the device").unwrap().1.split("\n\n").next().unwrap();
    let mut listed: Vec<&str> = rows
        .lines()
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split('`').filter(|word| word.starts_with("plinth_")))
        .collect();
    listed.sort_unstable();
    let mut sorted = expected.clone();
    sorted.sort_unstable();
    assert!(expected.len() > 60);
    assert_eq!(listed, sorted);
}

/// plinth.h states the rule about threads once; comments of functions state exceptions only.
#[test]
fn comments_do_not_repeat_the_rule_about_threads() {
    let headers = Headers::read();
    for comment in &headers.comments {
        let comment = comment.split_whitespace().filter(|word| *word != "*").collect::<Vec<_>>().join(" ");
        for repeated in
            ["called from any thread at any time", "while another thread is in a call with it", "hread-safe"]
        {
            assert!(!comment.contains(repeated), "this comment repeats the rule in plinth.h: {comment}");
        }
    }
}

/// A C++ exception that passes through the library ends the process.
#[test]
fn the_comment_of_each_callback_forbids_exceptions() {
    let mut callbacks = 0;
    for file in fs::read_dir(root().join("include/plinth")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for (position, _) in text.match_indices("_callback_t)(") {
            let comment = text[..position].rsplit("/**").next().unwrap();
            assert!(comment.contains("throw"), "{comment}");
            callbacks += 1;
        }
    }
    assert!(callbacks >= 13);
}

/// Each item of a list on the page about security names its tests, except those about what is not protected.
#[test]
fn the_claims_about_security_have_tests() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let (claims, _) = page.split_once("\n## Not protected").unwrap();
    let items: Vec<&str> = claims.split("\n- ").skip(1).map(|item| item.split("\n\n").next().unwrap()).collect();
    assert!(items.len() > 20);
    let mut wrong = Vec::new();
    for item in items {
        let tests = item.split_once("Tests: ").map_or("", |(_, tests)| tests);
        let named: Vec<_> = tests.split('`').filter_map(|name| name.split_once(": ")).collect();
        let claim = item.lines().next().unwrap();
        if named.is_empty() {
            wrong.push(format!("no test: {claim}"));
        }
        for (file, test) in named {
            if !has_test(file, test) {
                wrong.push(format!("{file} has no test {test}"));
            }
        }
    }
    assert_none(wrong, "each claim in docs/security.md names its tests");
}

#[test]
fn the_home_page_links_to_all_pages() {
    let home = fs::read_to_string(root().join("docs/index.md")).unwrap();
    let pages =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let missing =
        pages.filter(|page| page.ends_with(".md") && page != "index.md" && !home.contains(&format!("({page})")));
    assert_none(missing.collect(), "docs/index.md links to all pages");
}

fn has_test(file: &str, test: &str) -> bool {
    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
    [format!("fn {test}()"), format!("TEST({test})"), format!(", {test}) {{")]
        .iter()
        .any(|definition| text.contains(definition))
}

/// The page about reliability names tests of c_tests as PROGRAM/TEST.
#[test]
fn the_tests_that_the_reliability_page_names_exist() {
    let page = fs::read_to_string(root().join("docs/reliability.md")).unwrap();
    let is_name = |text: &&str| {
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_/".contains(&byte))
    };
    let named: Vec<_> =
        page.split('`').skip(1).step_by(2).filter(is_name).filter_map(|name| name.split_once('/')).collect();
    assert!(named.len() > 10);
    let is_missing = |(program, test): &(&str, &str)| {
        *program != "fuzz" && !["c", "cpp"].iter().any(|end| has_test(&format!("c_tests/{program}.{end}"), test))
    };
    let wrong = named.into_iter().filter(is_missing).map(|(program, test)| format!("{program} has no test {test}"));
    assert_none(wrong.collect(), "docs/reliability.md names tests that exist");
}

#[test]
fn the_security_page_lists_the_ignored_variables() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let (_, section) = page.split_once("\n## Programs with more rights").unwrap();
    let list = section.split("\n\n").find(|paragraph| paragraph.trim_start().starts_with('`')).unwrap();
    let listed: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    assert_eq!(listed, plinth_driver::environment::IGNORED_IF_SECURE);
}

#[test]
fn the_exceptions_exist() {
    let headers = Headers::read();
    for name in TORCH_GETTERS {
        assert!(headers.has(name), "{name} is an exception, but does not exist");
    }
}
