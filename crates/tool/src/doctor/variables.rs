//! Checks of environment variables: values that plinth refuses, and unknown names.

use super::{super::settings, Finding, Severity};
use plinth::internal::init;
use plinth_host::config::Config;

const ABOUT: &str = "settings";

/// Returns the findings.
pub fn check() -> Vec<Finding> {
    let set = settings::set();
    let mut findings = unknown(set.keys().map(String::as_str));
    let mut refused = |reason: String| {
        findings.push(Finding::new(Severity::Problem, ABOUT, reason, "Correct the variable, or unset it"));
    };
    if let Some(value) =
        set.get("PLINTH_DEVICE").filter(|value| !matches!(value.as_str(), "" | "cuda" | "host" | "auto"))
    {
        refused(format!("PLINTH_DEVICE is {value:?}; it can be cuda, host or auto"));
    }
    if let Err(reason) = Config::from_environment() {
        refused(reason);
    }
    init::refused_variables().iter().for_each(|error| refused(error.message().to_owned()));
    if findings.is_empty() {
        let count = set.keys().filter(|name| name.starts_with("PLINTH_")).count();
        let says = match count {
            0 => "No variable of plinth is set".to_owned(),
            1 => "One variable of plinth is set, and valid".to_owned(),
            _ => format!("{count} variables of plinth are set, and valid"),
        };
        findings.push(Finding::fine(ABOUT, says));
    }
    findings
}

fn unknown<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let unknown = names.filter(|name| settings::purpose(name).is_none());
    let each = unknown.map(|name| {
        let advice = match settings::most_similar(name) {
            Some(known) => format!("Did you mean {known}?"),
            None => "Correct the variable's name, or unset it".to_owned(),
        };
        Finding::new(Severity::Warning, ABOUT, format!("{name} is not a variable of plinth and has no effect"), advice)
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_variables_are_reported() {
        let found = unknown(["PLINTH_DEVICE", "PLINTH_DEVISE", "NCCL_DEBUG"].into_iter());
        assert_eq!(found.len(), 1);
        assert!(found[0].says.contains("PLINTH_DEVISE"));
        assert_eq!(found[0].advice.as_deref(), Some("Did you mean PLINTH_DEVICE?"));
    }
}
