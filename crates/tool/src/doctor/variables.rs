//! The variables: those that plinth would refuse, and those that it does not know.

use super::{super::settings, Finding, Weight};
use plinth::{host::config::Config, memory::config};

const ABOUT: &str = "settings";

/// What there is to say.
pub fn check() -> Vec<Finding> {
    let set = settings::set();
    let mut findings = unknown(set.keys().map(String::as_str));
    let mut refused = |reason: String| {
        findings.push(Finding::new(Weight::Problem, ABOUT, reason, "Correct the variable, or take it away"));
    };
    if let Some(value) =
        set.get("PLINTH_DEVICE").filter(|value| !matches!(value.as_str(), "" | "cuda" | "host" | "auto"))
    {
        refused(format!("PLINTH_DEVICE is {value:?}; it can be cuda, host or auto"));
    }
    if let Err(reason) = Config::read(|name| std::env::var(name).ok()) {
        refused(reason);
    }
    if let Err(error) = config::get() {
        refused(error.message().to_owned());
    }
    if findings.is_empty() {
        let count = set.keys().filter(|name| name.starts_with("PLINTH_")).count();
        let says = match count {
            0 => "none of plinth's variables is set".to_owned(),
            1 => "one of plinth's variables is set, and makes sense".to_owned(),
            _ => format!("{count} of plinth's variables are set, and make sense"),
        };
        findings.push(Finding::fine(ABOUT, says));
    }
    findings
}

fn unknown<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let unknown = names.filter(|name| settings::purpose(name).is_none());
    let each = unknown.map(|name| {
        let advice = match settings::meant(name) {
            Some(known) => format!("Perhaps it should be {known}"),
            None => "plinth info lists those that there are".to_owned(),
        };
        Finding::new(
            Weight::Warning,
            ABOUT,
            format!("plinth knows no variable {name}, and does as if it were not set"),
            advice,
        )
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_variables_are_told() {
        let found = unknown(["PLINTH_DEVICE", "PLINTH_DEVISE", "NCCL_DEBUG"].into_iter());
        assert_eq!(found.len(), 1);
        assert!(found[0].says.contains("PLINTH_DEVISE"));
        assert_eq!(found[0].advice.as_deref(), Some("Perhaps it should be PLINTH_DEVICE"));
    }
}
