//! Finds the entry of a user's source: its template, and the number of its parameters.
//!
//! As in PyTorch's jiterator, the last function is the entry, the functions before it are helpers, and the entry is a
//! template of one type. The source is not parsed beyond that: comments, string literals and braces are skipped, and
//! the compiler reports errors in the rest.

use crate::{
    error::{Error, Result},
    status::Status,
};
use std::ops::Range;

/// The entry of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The number of its parameters.
    pub parameters: usize,
    /// Whether it returns `void`.
    pub is_void: bool,
}

/// Finds the entry of a source.
pub fn entry(code: &str) -> Result<Entry> {
    find(code).map_err(|reason| {
        Error::new(
            Status::INVALID_VALUE,
            format!(
                "the code has no entry that can be called ({reason}); its last function must read like \
                 `template <typename T> T name(T x, T y) {{ return x + y; }}`"
            ),
        )
    })
}

/// Returns the source with comments and directives blanked, and with strings and characters replaced by `"`, byte for
/// byte.
fn code_only(text: &str) -> Vec<u8> {
    let mut code = text.as_bytes().to_vec();
    let mut at = 0;
    while at < code.len() {
        let end = match (code[at], code.get(at + 1)) {
            (b'/', Some(b'/')) => end_of(&code, at, b"\n"),
            (b'/', Some(b'*')) => end_of(&code, at + 2, b"*/") + 2,
            (quote @ (b'"' | b'\''), _) if !is_separator(&code, at) => closing_quote(&code, at + 1, quote) + 1,
            _ => {
                at += 1;
                continue;
            }
        };
        let end = end.min(code.len());
        let blank = if code[at] == b'/' { b' ' } else { b'"' };
        code[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = blank);
        at = end;
    }
    // A directive takes a whole line, and may continue on the next.
    let mut from = 0;
    while from < code.len() {
        let mut end = end_of(&code, from, b"\n");
        if code[from..end].trim_ascii_start().starts_with(b"#") {
            while end < code.len() && code[..end].ends_with(b"\\") {
                end = end_of(&code, end + 1, b"\n");
            }
            code[from..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
        from = end + 1;
    }
    code
}

/// Returns whether a quote is a digit separator: it is in a number, which a digit begins.
fn is_separator(code: &[u8], at: usize) -> bool {
    let is_of_number = |byte: &u8| is_word(*byte) || *byte == b'\'';
    let before = code[..at].iter().rposition(|byte| !is_of_number(byte)).map_or(0, |offset| offset + 1);
    code[at] == b'\'' && code[before].is_ascii_digit() && code.get(at + 1).is_some_and(u8::is_ascii_hexdigit)
}

fn end_of(code: &[u8], from: usize, mark: &[u8]) -> usize {
    let found = code.get(from..).and_then(|rest| rest.windows(mark.len()).position(|window| window == mark));
    found.map_or(code.len(), |offset| from + offset)
}

fn closing_quote(code: &[u8], mut at: usize, quote: u8) -> usize {
    while at < code.len() && code[at] != quote {
        at += if code[at] == b'\\' { 2 } else { 1 };
    }
    at
}

fn find(text: &str) -> std::result::Result<Entry, &'static str> {
    let code = code_only(text);
    let header = last_header(&code)?;
    let code = &code[header];
    let rest = after_word(code, b"template").ok_or("the last function is no template")?;
    let rest = rest.trim_ascii_start();
    if !rest.starts_with(b"<") {
        return Err("`template` is not followed by `<`");
    }
    let end = matching(rest, 0).ok_or("the template's `<` is not closed")?;
    let rest = &rest[end + 1..];
    let open = rest.iter().position(|byte| *byte == b'(').ok_or("the last thing in braces is no function")?;
    let close = matching(rest, open).ok_or("a parenthesis is not closed")?;
    let before = rest[..open].trim_ascii_end();
    let start = before.iter().rposition(|byte| !is_word(*byte)).map_or(0, |offset| offset + 1);
    let name = std::str::from_utf8(&before[start..]).unwrap_or_default();
    let returned = before[..start].trim_ascii();
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || returned.is_empty() {
        return Err("the function has no name, or returns nothing that is named");
    }
    Ok(Entry {
        name: name.to_owned(),
        parameters: parameters(&rest[open + 1..close]),
        is_void: returned.ends_with(b"void"),
    })
}

/// Returns the range of the last function's declaration: from the end of the previous definition to the brace that
/// opens the body.
fn last_header(code: &[u8]) -> std::result::Result<Range<usize>, &'static str> {
    let (mut depth, mut start, mut found) = (0_usize, 0, None);
    // Braces in parentheses belong to a default argument.
    let mut parentheses = 0_usize;
    for (at, byte) in code.iter().enumerate() {
        match byte {
            b'(' => parentheses += 1,
            b')' => parentheses = parentheses.saturating_sub(1),
            _ => {}
        }
        if parentheses > 0 && depth == 0 {
            continue;
        }
        match byte {
            b'{' => {
                // A table or a struct also has braces.
                if depth == 0 && (found.is_none() || code[start..at].contains(&b'(')) {
                    found = Some(start..at);
                }
                depth += 1;
            }
            b'}' => {
                depth = depth.checked_sub(1).ok_or("a `}` has no `{`")?;
                start = at + 1;
            }
            b';' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    if depth > 0 { Err("a `{` is not closed") } else { found.ok_or("there is no function") }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the code after the first occurrence of a word.
fn after_word<'a>(code: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let mut from = 0;
    while let Some(offset) = code.get(from..)?.windows(word.len()).position(|window| window == word) {
        let (start, end) = (from + offset, from + offset + word.len());
        if (start == 0 || !is_word(code[start - 1])) && code.get(end).is_none_or(|byte| !is_word(*byte)) {
            return Some(&code[end..]);
        }
        from = end;
    }
    None
}

/// Returns the position of the bracket that closes the one at `open`. A `<` is a bracket only among the parameters of a
/// template; elsewhere it may be an operator.
fn matching(code: &[u8], open: usize) -> Option<usize> {
    let in_template = code.get(open) == Some(&b'<');
    let mut depth = 0_i32;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'<' | b'>' if !in_template => {}
            b'(' | b'<' | b'[' => depth += 1,
            b')' | b'>' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Counts the parameters of a list.
fn parameters(list: &[u8]) -> usize {
    if list.trim_ascii().is_empty() || list.trim_ascii() == b"void" {
        return 0;
    }
    // In parentheses, a `<` may be an operator, and no comma separates parameters.
    let (mut depth, mut angles) = (0_i32, 0_i32);
    let commas = list.iter().filter(|byte| {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'<' if depth == 0 => angles += 1,
            b'>' if depth == 0 => angles -= 1,
            _ => {}
        }
        **byte == b',' && depth == 0 && angles == 0
    });
    commas.count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_function_is_the_entry() {
        for (code, name, parameters, is_void) in [
            ("template <typename T> T f(T x) { return x; }", "f", 1, false),
            ("template<class T>\nT\nmy_add ( T x , T y )\n{ return x + y; }\n", "my_add", 2, false),
            (
                "template <typename T> T h(T x) { return x; }\ntemplate <typename T> T g(T x, T y) { return h(x); }",
                "g",
                2,
                false,
            ),
            (
                "struct S { int a; }; template <typename T> void many(T x, T& a, T& b) { if (x) { a = x; } b = x; }",
                "many",
                3,
                true,
            ),
            ("template <typename T> __device__ inline T f(T x, double s = (1, 2)) { return x; } // {", "f", 2, false),
            (
                "/* } */ template <typename T> T f(T x) { /* { */ const char *t = \"}\\\"\"; char c = '{'; return x + 1'000; }",
                "f",
                1,
                false,
            ),
            ("#define OPEN {\n#define TWO \\\n  {\ntemplate <typename T> T f() { return 1; }", "f", 0, false),
            ("template <typename T, int N = 3> T f(T x) { return x; }", "f", 1, false),
            (
                "template <typename T> T f(T x, bool less = (1 < 2), A<int, 3> y) { return less ? x : y; }",
                "f",
                3,
                false,
            ),
            (
                "template <typename T> T f(T x) { switch (int(x)) { case'a': return u8'a'; } return 0xa'b + 1'0'0; }",
                "f",
                1,
                false,
            ),
            ("template <typename T> T f(T x, T y = T{}) { return x; }", "f", 2, false),
            (
                "template <typename T> T f(T x) { return x; }\nstatic const int t[] = {1};\nstruct S { int f(int); };",
                "f",
                1,
                false,
            ),
        ] {
            assert_eq!(entry(code).unwrap(), Entry { name: name.to_owned(), parameters, is_void }, "{code}");
        }
    }

    #[test]
    fn missing_entries_are_reported() {
        for (code, part) in [
            ("", "there is no function"),
            ("int x;", "there is no function"),
            ("float f(float x) { return x; }", "is no template"),
            ("template <typename T> T f(T x) { return x;", "a `{` is not closed"),
            ("template <typename T> T f(T x) { return x; } }", "a `}` has no `{`"),
            ("template <typename T> f(T x) { return x; }", "returns nothing that is named"),
            ("template <typename T T f(T x) { return x; }", "is not closed"),
            ("template <typename T> struct S { T x; };", "is no function"),
            ("template T f(T x) { return x; }", "not followed by `<`"),
        ] {
            let error = entry(code).unwrap_err();
            assert!(error.message().contains(part), "{code}: {error}");
        }
    }
}
