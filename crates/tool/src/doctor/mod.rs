//! `plinth doctor`: what is wrong with this machine's CUDA, in sentences, and what to do about it.
//!
//! Each file asks about one part: the [`driver`] and what stands in its way, the [`cards`], the [`libraries`] of others, the
//! system's [`limits`], the [`variables`], and last a [`trial`]. What they ask of the system goes through a [`Machine`],
//! so that tests can be sick machines.

mod cards;
mod driver;
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

/// What `plinth doctor` is told.
#[derive(Args)]
pub struct Options {
    /// Only look: no memory is allocated, and no context is made
    #[arg(long)]
    no_trial: bool,
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// As it should be.
    Fine,
    /// Good to know.
    Note,
    /// Something will be slow, or will not work.
    Warning,
    /// Nothing works.
    Problem,
}

impl Weight {
    fn name(self) -> &'static str {
        match self {
            Weight::Fine => "fine",
            Weight::Note => "note",
            Weight::Warning => "warning",
            Weight::Problem => "problem",
        }
    }

    fn style(self) -> Style {
        match self {
            Weight::Fine => Style::new().green(),
            Weight::Note => Style::new().cyan(),
            Weight::Warning => Style::new().yellow(),
            Weight::Problem => Style::new().red().bold(),
        }
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub weight: Weight,
    /// What it is about, in a word.
    pub about: &'static str,
    /// What is so, in a sentence.
    pub says: String,
    /// What to do, in a sentence, where there is something to do.
    pub advice: Option<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub fn fine(about: &'static str, says: impl Into<String>) -> Finding {
        Finding { weight: Weight::Fine, about, says: says.into(), advice: None }
    }

    /// Something that is not, and what to do.
    pub fn new(weight: Weight, about: &'static str, says: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { weight, about, says: says.into(), advice: Some(advice.into()) }
    }
}

/// Which devices a program gets here if it does not choose: what the library does without `PLINTH_DEVICE`, not what this
/// tool does.
fn wanted(asked: Option<Kind>) -> Kind {
    asked.unwrap_or_else(|| match std::env::var("PLINTH_DEVICE").as_deref() {
        Ok("host") => Kind::Host,
        Ok("auto") => Kind::Auto,
        _ => Kind::Cuda,
    })
}

/// Runs it.
pub fn run(options: &Options, asked: Option<Kind>, output: &Output) -> Result<()> {
    let (machine, wanted) = (Machine::this(), wanted(asked));
    let mut findings = variables::check();
    let (told, driver) = driver::check(wanted, &machine);
    findings.extend(told);
    if let Some(driver) = &driver {
        findings.extend(cards::check(driver));
    }
    findings.extend(libraries::check(driver.as_ref()));
    findings.extend(limits::check(&machine));
    let stopped = findings.iter().any(|finding| finding.weight == Weight::Problem);
    // What was found wrong is why a trial would fail, too.
    if !options.no_trial && !stopped {
        findings.extend(trial::check());
    }
    let stopped = findings.iter().any(|finding| finding.weight == Weight::Problem);
    if output.json {
        output.value(&as_json(&findings, stopped))?;
    } else {
        output.text(&as_text(&findings))?;
    }
    if stopped { Err(Failure::Found) } else { Ok(()) }
}

fn as_json(findings: &[Finding], stopped: bool) -> Value {
    let each = |finding: &Finding| {
        json!({
            "weight": finding.weight.name(),
            "about": finding.about,
            "says": finding.says,
            "advice": finding.advice,
        })
    };
    json!({ "works": !stopped, "findings": findings.iter().map(each).collect::<Vec<Value>>() })
}

fn as_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = finding.weight.style().apply_to(format!("{:<8}", finding.weight.name()));
        text += &format!("{mark} {:<11} {}.\n", finding.about, paragraph(&finding.says, 21));
        if let Some(advice) = &finding.advice {
            text += &format!("{:<20} {}.\n", "", paragraph(advice, 21));
        }
    }
    let count = |weight| findings.iter().filter(|finding| finding.weight == weight).count();
    let (problems, warnings) = (count(Weight::Problem), count(Weight::Warning));
    text += "\n";
    let counted = |count, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    text += &match (problems, warnings) {
        (0, 0) => heading("Nothing is wrong."),
        (0, _) => heading(&format!("It works, with {}.", counted(warnings, "warning"))),
        _ => heading(&format!("It does not work: {}.", counted(problems, "problem"))),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_sentences() {
        let findings = [
            Finding::fine("driver", "it is there"),
            Finding::new(Weight::Warning, "memlock", "it is little", "Raise it"),
        ];
        let text = as_text(&findings);
        assert!(text.contains("it is little.\n") && text.contains(" Raise it.\n"), "{text}");
        assert!(text.contains("with 1 warning."), "{text}");
        assert_eq!(as_json(&findings, false)["findings"][1]["weight"], "warning");
    }
}
