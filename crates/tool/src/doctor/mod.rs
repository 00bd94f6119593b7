//! `plinth doctor`: diagnosis of this machine's CUDA installation, with advice.
//!
//! Each module checks one area: the [`driver`], the [`cards`] (GPUs), other [`libraries`], the system's [`limits`],
//! the [`variables`], the [`host`] device, and last a [`trial`]. They query the system through a [`Machine`], so that tests can simulate
//! faulty machines.

mod cards;
mod driver;
mod host;
mod libraries;
mod limits;
mod machine;
mod trial;
mod variables;

use super::{
    Kind,
    failure::{Failure, Result},
    output::{Output, heading, paragraph},
};
use clap::Args;
use console::Style;
use machine::Machine;
use serde_json::{Value, json};

/// The options of `plinth doctor`.
#[derive(Args)]
pub struct Options {
    /// Do not create contexts or allocate memory
    #[arg(long)]
    no_trial: bool,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// No problem.
    Fine,
    /// Information.
    Note,
    /// Something is slow, or fails in some programs.
    Warning,
    /// plinth does not work.
    Problem,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Fine => "fine",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        }
    }

    fn style(self) -> Style {
        match self {
            Severity::Fine => Style::new().green(),
            Severity::Note => Style::new().cyan(),
            Severity::Warning => Style::new().yellow(),
            Severity::Problem => Style::new().red().bold(),
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How severe it is.
    pub severity: Severity,
    /// Its subject, in a word.
    pub about: &'static str,
    /// The finding, in a sentence.
    pub says: String,
    /// The advice, in a sentence, if there is any.
    pub advice: Option<String>,
}

impl Finding {
    /// Creates a finding without a problem.
    pub fn fine(about: &'static str, says: impl Into<String>) -> Finding {
        Finding { severity: Severity::Fine, about, says: says.into(), advice: None }
    }

    /// Creates a finding with advice.
    pub fn new(severity: Severity, about: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { severity, about, says: says.into(), advice: Some(advice.into()) }
    }
}

/// Returns the kind of device that a program gets here: the library's default without `PLINTH_DEVICE`, not this
/// tool's.
fn device_kind(requested: Option<Kind>) -> Kind {
    requested.unwrap_or_else(|| match std::env::var("PLINTH_DEVICE").as_deref() {
        Ok("host") => Kind::Host,
        Ok("auto") => Kind::Auto,
        _ => Kind::Cuda,
    })
}

/// Runs the subcommand.
pub fn run(options: &Options, requested: Option<Kind>, output: &Output) -> Result<()> {
    let (machine, kind) = (Machine::this(), device_kind(requested));
    let mut findings = variables::check();
    let (driver_findings, driver) = driver::check(kind, &machine);
    findings.extend(driver_findings);
    if let Some(driver) = &driver {
        findings.extend(cards::check(driver));
    }
    if let Some(driver) = &driver {
        findings.extend(libraries::check(driver));
    } else if kind != Kind::Cuda {
        findings.extend(host::check());
    }
    findings.extend(limits::check(&machine, driver.is_some()));
    let has_problem = findings.iter().any(|finding| finding.severity == Severity::Problem);
    // A trial would fail because of the problems that were already found.
    if !options.no_trial && !has_problem {
        findings.extend(trial::check());
    }
    let has_problem = findings.iter().any(|finding| finding.severity == Severity::Problem);
    let is_without_gpu = kind == Kind::Cuda && driver.is_none();
    let works_on_host = is_without_gpu && !options.no_trial && host::works_instead();
    // What there is to do comes first.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    if output.json {
        output.value(&as_json(&findings, has_problem, works_on_host))?;
    } else {
        output.text(&as_text(&findings, works_on_host))?;
    }
    if has_problem { Err(Failure::ProblemFound) } else { Ok(()) }
}

fn as_json(findings: &[Finding], has_problem: bool, works_on_host: bool) -> Value {
    let each = |finding: &Finding| {
        json!({
            "weight": finding.severity.name(),
            "about": finding.about,
            "says": finding.says,
            "advice": finding.advice,
        })
    };
    json!({ "works": !has_problem, "works_on_host_device": works_on_host, "findings": findings.iter().map(each).collect::<Vec<Value>>() })
}

/// Ends a sentence that may already have its last character.
fn sentence(text: &str) -> String {
    let end = if text.ends_with(['.', '?']) { "" } else { "." };
    format!("{}{end}", paragraph(text, 21))
}

fn as_text(findings: &[Finding], works_on_host: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        let label = finding.severity.style().apply_to(format!("{:<8}", finding.severity.name()));
        let says = sentence(&finding.says);
        text += &match &finding.advice {
            Some(advice) => {
                let advice = Style::new().bold().apply_to(sentence(advice));
                format!("{label} {:<11} {advice}\n{:<20} {says}\n", finding.about, "")
            }
            None => format!("{label} {:<11} {says}\n", finding.about),
        };
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    text += "\n";
    let counted = |count, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    text += &match (problems, warnings) {
        (0, 0) => heading("No problem was found."),
        (0, _) => heading(&format!("plinth works, with {}.", counted(warnings, "warning"))),
        _ => heading(&format!("plinth does not work: {}.", counted(problems, "problem"))),
    };
    if works_on_host {
        text += &heading("It works without a GPU: set PLINTH_DEVICE=host to use the host device, on the CPU.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_printed_as_sentences() {
        let findings = [
            Finding::fine("driver", "it is there"),
            Finding::new(Severity::Warning, "memlock", "it is little", "Raise it"),
        ];
        let text = as_text(&findings, false);
        // The advice comes first.
        assert!(text.contains("warning  memlock     Raise it.\n                     it is little.\n"), "{text}");
        assert!(text.contains("with 1 warning.") && !text.contains("PLINTH_DEVICE=host"), "{text}");
        assert!(as_text(&findings, true).contains("set PLINTH_DEVICE=host"));
        assert_eq!(as_json(&findings, false, false)["findings"][1]["weight"], "warning");
        assert_eq!(sentence("Did you mean it?") + &sentence("Yes"), "Did you mean it?Yes.");
    }
}
