//! Parses and formats settings: `key:value,key:value`, where a value may be a list, `[256:1,512:2,>:4]`. Blanks are
//! ignored, and the last value of a repeated key applies.

use super::{Config, Debug, INTERVALS, Kind};
use std::fmt::{Display, Write};

/// A result with a description of the error in the text.
type Parsed<T> = std::result::Result<T, String>;

const MIB: u64 = 1 << 20;

/// A key, for error messages about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key<'a>(&'a str);

impl Key<'_> {
    fn invalid_value<T>(self, allowed: impl Display, found: &str) -> Parsed<T> {
        Err(format!("{} must be {allowed}, not {found:?}", self.0))
    }

    fn boolean(self, value: &str) -> Parsed<bool> {
        match value {
            "True" => Ok(true),
            "False" => Ok(false),
            other => self.invalid_value("True or False", other),
        }
    }

    fn number(self, value: &str, minimum: u64, maximum: u64) -> Parsed<u64> {
        match value.parse() {
            Ok(number) if (minimum..=maximum).contains(&number) => Ok(number),
            _ => self.invalid_value(format_args!("a whole number from {minimum} to {maximum}"), value),
        }
    }

    /// Parses a number of MiB.
    fn number_of_mebibytes(self, value: &str, minimum: u64) -> Parsed<u64> {
        self.number(value, minimum, u64::MAX >> 21)
    }

    /// Parses a number of MiB and returns bytes.
    fn mebibytes(self, value: &str, minimum: u64) -> Parsed<u64> {
        Ok(self.number_of_mebibytes(value, minimum)? * MIB)
    }

    fn fraction(self, value: &str, allowed: &str, is_allowed: impl Fn(f64) -> bool) -> Parsed<f64> {
        match value.parse() {
            Ok(number) if is_allowed(number) => Ok(number),
            _ => self.invalid_value(allowed, value),
        }
    }

    fn power_of_two(self, value: &str, maximum: u64) -> Parsed<u64> {
        match value.parse::<u64>() {
            Ok(number) if number.is_power_of_two() && number <= maximum => Ok(number),
            _ => self.invalid_value(format_args!("a power of two of at most {maximum}"), value),
        }
    }

    fn divisions(self, value: &str) -> Parsed<u64> {
        // More divisions would make steps smaller than a unit for every size.
        if value == "0" { Ok(0) } else { self.power_of_two(value, 1 << 32) }
    }

    /// Parses one number for all sizes, or a list of `MiB:number` that may end with `>:number` for all larger sizes.
    fn all_divisions(self, value: &str) -> Parsed<[u64; INTERVALS]> {
        let Some(entries) = list(value) else { return Ok([self.divisions(value)?; INTERVALS]) };
        let (mut result, mut last) = ([0; INTERVALS], None);
        for entry in entries.split(',') {
            let Some((size, divisions)) = entry.split_once(':') else {
                return self.invalid_value("a number or a list of size:number", value);
            };
            let divisions = self.divisions(divisions)?;
            if size == ">" {
                result[last.map_or(0, |last| last + 1)..].fill(divisions);
                last = Some(INTERVALS - 1);
                continue;
            }
            let index = (self.power_of_two(size, 1 << 40)?.ilog2() as usize).min(INTERVALS - 1);
            let first = if last.is_none() { 0 } else { index };
            result[first..=index].fill(divisions);
            last = Some(index);
        }
        Ok(result)
    }
}

/// Returns the text between the brackets of a list.
fn list(value: &str) -> Option<&str> {
    value.strip_prefix('[')?.strip_suffix(']')
}

/// Splits a text at the commas outside of lists.
fn pairs(text: &str) -> Parsed<Vec<&str>> {
    let (mut pairs, mut start, mut inside) = (Vec::new(), 0, false);
    for (index, letter) in text.char_indices() {
        match letter {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return Err(format!("unbalanced brackets in {text:?}")),
            ',' if !inside => {
                pairs.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("unbalanced brackets in {text:?}"));
    }
    pairs.push(&text[start..]);
    pairs.retain(|pair| !pair.is_empty());
    Ok(pairs)
}

/// Parses the words of memory debugging, separated by commas or colons, with or without brackets.
pub fn debug(text: &str) -> Parsed<Debug> {
    let text: String = text.split_whitespace().collect();
    let mut debug = Debug::default();
    for word in list(&text).unwrap_or(&text).split([',', ':']).filter(|word| !word.is_empty()) {
        match word {
            "guard" => debug.guard = true,
            "unmap" => debug.unmap = true,
            "fill" => debug.fill = true,
            other => return Err(format!("debug must consist of the words guard, unmap and fill, not {other:?}")),
        }
    }
    Ok(debug)
}

/// Stores a value that was parsed.
fn store<T>(setting: &mut T, value: Parsed<T>) -> Parsed<()> {
    *setting = value?;
    Ok(())
}

/// Parses the value of a key, and stores it.
type Setter = fn(&mut Config, Key, &str) -> Parsed<()>;

/// The keys.
const KEYS: [(&str, Setter); 21] = [
    ("backend", |config, key, value| {
        config.backend = match value {
            "native" => Kind::Native,
            "cudaMallocAsync" => Kind::Async,
            "uncached" => Kind::Uncached,
            other => return key.invalid_value("native, cudaMallocAsync or uncached", other),
        };
        Ok(())
    }),
    ("expandable_segments", |config, key, value| store(&mut config.expandable_segments, key.boolean(value))),
    // The minimum is large_segment_size_mb, which may come later in the text.
    ("max_split_size_mb", |config, key, value| store(&mut config.max_split_size, key.mebibytes(value, 1))),
    ("max_non_split_rounding_mb", |config, key, value| {
        store(&mut config.max_non_split_rounding, key.mebibytes(value, 1))
    }),
    ("large_segment_size_mb", |config, key, value| store(&mut config.large_segment_size, key.mebibytes(value, 11))),
    ("garbage_collection_threshold", |config, key, value| {
        let threshold = key.fraction(value, "more than 0 and less than 1", |part| part > 0.0 && part < 1.0);
        store(&mut config.garbage_collection_threshold, threshold)
    }),
    ("roundup_power2_divisions", |config, key, value| {
        store(&mut config.roundup_power2_divisions, key.all_divisions(value))
    }),
    ("per_process_memory_fraction", |config, key, value| {
        let fraction = key.fraction(value, "from 0 to 1", |part| (0.0..=1.0).contains(&part));
        store(&mut config.per_process_memory_fraction, fraction)
    }),
    ("release_lock_on_cudamalloc", set_release_lock),
    ("release_lock_on_hipmalloc", set_release_lock),
    ("graph_capture_record_stream_reuse", |config, key, value| {
        store(&mut config.graph_capture_record_stream_reuse, key.boolean(value))
    }),
    ("throw_on_cudamalloc_oom", |config, key, value| store(&mut config.throw_on_cudamalloc_oom, key.boolean(value))),
    ("pinned_use_cuda_host_register", set_host_register),
    ("pinned_use_hip_host_register", set_host_register),
    ("pinned_num_register_threads", |config, key, value| {
        store(&mut config.pinned_num_register_threads, key.power_of_two(value, 128).map(|threads| threads as u32))
    }),
    ("pinned_use_background_threads", |config, key, value| {
        store(&mut config.pinned_use_background_threads, key.boolean(value))
    }),
    ("pinned_reserve_segment_size_mb", |config, key, value| {
        store(&mut config.pinned_reserve_segment_size_mb, key.number_of_mebibytes(value, 1))
    }),
    ("pinned_max_round_threshold_mb", |config, key, value| {
        store(&mut config.pinned_max_round_threshold_mb, key.number_of_mebibytes(value, 0))
    }),
    ("pinned_max_cached_size_mb", |config, key, value| {
        store(&mut config.pinned_max_cached_size_mb, key.number_of_mebibytes(value, 0))
    }),
    ("debug", |config, _, value| store(&mut config.debug, debug(value))),
    ("debug_quarantine_mb", |config, key, value| {
        store(&mut config.debug_quarantine_mb, key.number_of_mebibytes(value, 0))
    }),
];

fn set_release_lock(config: &mut Config, key: Key, value: &str) -> Parsed<()> {
    store(&mut config.release_lock_on_cudamalloc, key.boolean(value))
}

fn set_host_register(config: &mut Config, key: Key, value: &str) -> Parsed<()> {
    store(&mut config.pinned_use_cuda_host_register, key.boolean(value))
}

/// Describes an unknown key, with the most similar known one, or with all of them if none is similar.
#[cold]
fn unknown_key(name: &str) -> String {
    /// The similarity from which a key is suggested, between 0 and 1.
    const SIMILAR: f64 = 0.9;
    let rated = KEYS.iter().map(|(key, _)| (strsim::jaro_winkler(name, key), *key));
    match rated.max_by(|one, other| one.0.total_cmp(&other.0)) {
        Some((similarity, key)) if similarity >= SIMILAR => format!("unknown key {name:?}; did you mean {key}?"),
        _ => format!("unknown key {name:?}; the keys are {}", KEYS.map(|(key, _)| key).join(", ")),
    }
}

/// Parses a text into `config`. Keys that the text does not name keep their values.
pub fn parse(text: &str, config: &mut Config) -> Parsed<()> {
    let text: String = text.split_whitespace().collect();
    for pair in pairs(&text)? {
        let Some((name, value)) = pair.split_once(':') else {
            return Err(format!("{pair:?} is not of the form key:value"));
        };
        let Some((_, set)) = KEYS.iter().find(|(key, _)| *key == name) else { return Err(unknown_key(name)) };
        set(config, Key(name), value)?;
    }
    Ok(())
}

/// Returns whether a text has a value for a key.
pub fn names(text: &str, key: &str) -> bool {
    let text: String = text.split_whitespace().collect();
    let is_key = |pair: &&str| pair.split_once(':').is_some_and(|(name, _)| name == key);
    pairs(&text).is_ok_and(|pairs| pairs.iter().any(is_key))
}

/// Formats settings as a text that [`parse`] reads. Omits a key that has its default value if no text expresses that
/// value.
pub fn write(config: &Config) -> String {
    let mut text = String::new();
    let mut put = |key: &str, value: &dyn Display| {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{key}:{value}");
    };
    let word = |value: bool| if value { "True" } else { "False" };
    put(
        "backend",
        &match config.backend {
            Kind::Async => "cudaMallocAsync",
            Kind::Uncached => "uncached",
            Kind::Native | Kind::Pluggable | Kind::Debug => "native",
        },
    );
    put("expandable_segments", &word(config.expandable_segments));
    if config.max_split_size != u64::MAX {
        put("max_split_size_mb", &(config.max_split_size / MIB));
    }
    put("max_non_split_rounding_mb", &(config.max_non_split_rounding / MIB));
    put("large_segment_size_mb", &(config.large_segment_size / MIB));
    if config.garbage_collection_threshold > 0.0 {
        put("garbage_collection_threshold", &config.garbage_collection_threshold);
    }
    let divisions = &config.roundup_power2_divisions;
    if divisions.iter().all(|one| one == &divisions[0]) {
        put("roundup_power2_divisions", &divisions[0]);
    } else {
        let entries: Vec<String> =
            divisions.iter().enumerate().map(|(index, one)| format!("{}:{one}", 1_u64 << index)).collect();
        put("roundup_power2_divisions", &format_args!("[{}]", entries.join(",")));
    }
    put("per_process_memory_fraction", &config.per_process_memory_fraction);
    put("release_lock_on_cudamalloc", &word(config.release_lock_on_cudamalloc));
    put("graph_capture_record_stream_reuse", &word(config.graph_capture_record_stream_reuse));
    put("throw_on_cudamalloc_oom", &word(config.throw_on_cudamalloc_oom));
    put("pinned_use_cuda_host_register", &word(config.pinned_use_cuda_host_register));
    put("pinned_num_register_threads", &config.pinned_num_register_threads);
    put("pinned_use_background_threads", &word(config.pinned_use_background_threads));
    if config.pinned_reserve_segment_size_mb > 0 {
        put("pinned_reserve_segment_size_mb", &config.pinned_reserve_segment_size_mb);
    }
    put("pinned_max_round_threshold_mb", &config.pinned_max_round_threshold_mb);
    put("pinned_max_cached_size_mb", &config.pinned_max_cached_size_mb);
    let words = [("guard", config.debug.guard), ("unmap", config.debug.unmap), ("fill", config.debug.fill)];
    let words: Vec<&str> = words.iter().filter(|word| word.1).map(|word| word.0).collect();
    put("debug", &format_args!("[{}]", words.join(":")));
    put("debug_quarantine_mb", &config.debug_quarantine_mb);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Parsed<Config> {
        let mut config = Config::default();
        parse(text, &mut config).map(|()| config)
    }

    #[test]
    fn grammar_matches_torch() {
        assert!(read("").unwrap().expandable_segments);
        assert!(!read(" expandable_segments : False ,").unwrap().expandable_segments);
        assert!(read("expandable_segments:False,expandable_segments:True").unwrap().expandable_segments);
        let config = read("max_split_size_mb:200,roundup_power2_divisions:[256:1,512:2,1024:4,>:8],backend:native");
        assert_eq!(config.as_ref().unwrap().max_split_size, 200 << 20);
        let divisions = config.unwrap().roundup_power2_divisions;
        assert_eq!(divisions, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(read("roundup_power2_divisions:[>:4]").unwrap().roundup_power2_divisions, [4; INTERVALS]);
        assert_eq!(read("roundup_power2_divisions:[64:8]").unwrap().roundup_power2_divisions[7], 0);
    }

    #[test]
    fn every_key_rejects_invalid_values() {
        for invalid_value in [
            "expandable_segments",
            "expandable_segments:yes",
            "backend:cuda",
            "max_split_size_mb:0",
            "max_split_size_mb:-1",
            "max_split_size_mb:99999999999999999999",
            "max_non_split_rounding_mb:x",
            "large_segment_size_mb:10",
            "garbage_collection_threshold:0",
            "garbage_collection_threshold:1",
            "garbage_collection_threshold:nan",
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:[256:3]",
            "roundup_power2_divisions:[300:2]",
            "roundup_power2_divisions:[256]",
            "roundup_power2_divisions:[]",
            "roundup_power2_divisions:[256:1",
            "roundup_power2_divisions:256:1]",
            "per_process_memory_fraction:1.1",
            "per_process_memory_fraction:-0.1",
            "release_lock_on_cudamalloc:1",
            "graph_capture_record_stream_reuse:true",
            "throw_on_cudamalloc_oom:",
            "pinned_use_cuda_host_register:on",
            "pinned_num_register_threads:3",
            "pinned_num_register_threads:256",
            "pinned_use_background_threads:0",
            "pinned_reserve_segment_size_mb:0",
            "pinned_max_round_threshold_mb:x",
            "pinned_max_cached_size_mb:x",
            "debug:[guard:smap]",
            "debug_quarantine_mb:-1",
            "max_split_size:32",
        ] {
            let name = invalid_value.split(':').next().unwrap();
            let error = read(invalid_value).unwrap_err();
            assert!(error.contains(name), "{invalid_value}: {error}");
        }
    }

    #[test]
    fn a_similar_key_is_suggested() {
        for (name, key) in [
            ("expandable_segment", "expandable_segments"),
            ("expandable-segments", "expandable_segments"),
            ("expandible_segments", "expandable_segments"),
            ("max_split_size", "max_split_size_mb"),
            ("max_split_size_gb", "max_split_size_mb"),
            ("garbage_collection_treshold", "garbage_collection_threshold"),
            ("gc_threshold", ""),
            ("pinned_background_threads", "pinned_use_background_threads"),
            ("Backend", "backend"),
            ("x", ""),
            ("", ""),
        ] {
            let error = read(&format!("{name}:1")).unwrap_err();
            let expected =
                if key.is_empty() { "; the keys are backend, ".into() } else { format!("; did you mean {key}?") };
            assert!(error.starts_with(&format!("unknown key {name:?}")) && error.contains(&expected), "{error}");
        }
    }

    #[test]
    fn formatted_settings_parse_back() {
        for text in [
            "",
            "backend:cudaMallocAsync,expandable_segments:False,max_split_size_mb:77,garbage_collection_threshold:0.625",
            "roundup_power2_divisions:[1:2,>:4],pinned_reserve_segment_size_mb:5,pinned_num_register_threads:8",
            "debug:[guard:unmap:fill],debug_quarantine_mb:3,per_process_memory_fraction:0.1,large_segment_size_mb:30",
        ] {
            let config = read(text).unwrap();
            assert_eq!(read(&write(&config)), Ok(config), "{text}");
        }
    }

    #[test]
    fn debug_words_are_parsed() {
        let all = Debug { guard: true, unmap: true, fill: true };
        assert_eq!(debug("guard,unmap,fill"), Ok(all));
        assert_eq!(debug(" [guard : unmap : fill] "), Ok(all));
        assert_eq!(debug(""), Ok(Debug::default()));
        assert!(debug("guards").unwrap_err().contains("guards"));
    }
}
