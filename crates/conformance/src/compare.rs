//! Comparison of the answers of two devices.

use super::{
    answer::Answer,
    differences, generate,
    program::{Kind, Step},
};
use std::{collections::BTreeMap, fmt::Write};

/// Differences with the same call, situation and answers.
struct Difference {
    programs: u32,
    /// The program whose difference comes first, and the number of the step.
    example: (u32, usize),
}

/// The result of a comparison.
#[derive(Default)]
pub struct Comparison {
    groups: BTreeMap<(Kind, String, Answer, Answer), Difference>,
    allowed: BTreeMap<&'static str, u32>,
    programs: u32,
    /// Programs that the recorded device did not survive.
    excluded: u32,
    calls: u64,
    differing: u64,
    not_compared: u64,
}

/// Describes the situation of a call: the numbers among its arguments, without those of objects.
fn situation(step: &Step) -> String {
    let letters = step.kind.text().split('{').skip(1).filter_map(|part| part.chars().next());
    let numbers = letters.zip(step.arguments).filter_map(|(letter, value)| match (letter, value) {
        ('u' | 'b', value) => Some(value.to_string()),
        ('i', value) => Some((value as i32).to_string()),
        ('s', 0 | 1) => Some("legacy".to_owned()),
        ('s', 2) => Some("per-thread".to_owned()),
        _ => None,
    });
    numbers.collect::<Vec<_>>().join(", ")
}

/// Compares what two devices answered to the same programs. A program is compared up to its first difference: what
/// comes later may follow from it.
pub fn compare(seed: u64, expected: &[Vec<Answer>], got: &[Vec<Answer>]) -> Comparison {
    let mut comparison = Comparison { programs: expected.len() as u32, ..Comparison::default() };
    for (number, (expected, got)) in expected.iter().zip(got).enumerate() {
        let program = generate::program(seed, number as u32);
        if expected == &[Answer::CRASHED] {
            comparison.excluded += 1;
            continue;
        }
        comparison.calls += program.steps.len() as u64;
        let compared = expected.iter().zip(got).take(program.steps.len());
        let Some(at) = compared.clone().position(|(expected, got)| expected != got) else {
            comparison.not_compared += (program.steps.len() - expected.len().min(got.len())) as u64;
            continue;
        };
        comparison.not_compared += (program.steps.len() - at - 1) as u64;
        let step = &program.steps[at];
        if let Some(reason) = differences::allowed(&program, at, expected, got[at]) {
            *comparison.allowed.entry(reason).or_default() += 1;
            continue;
        }
        comparison.differing += 1;
        let key = (step.kind, situation(step), expected[at], got[at]);
        let group = comparison.groups.entry(key).or_insert(Difference { programs: 0, example: (number as u32, at) });
        group.programs += 1;
        if at < group.example.1 {
            group.example = (number as u32, at);
        }
    }
    comparison
}

impl Comparison {
    /// Returns whether there are differences that are not allowed.
    pub fn differs(&self) -> bool {
        self.differing != 0
    }

    /// Describes the differences, the most frequent first, each with an example.
    pub fn text(&self, seed: u64, expected: &[Vec<Answer>], got: &[Vec<Answer>], most: usize) -> String {
        let mut text = String::new();
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.programs));
        for ((kind, situation, want, have), group) in groups.iter().take(most) {
            let (number, at) = group.example;
            let name = kind.text().split('(').next().unwrap_or_default();
            let _ = writeln!(
                text,
                "{name} [{situation}]: expected {want}, got {have}, in {} programs; program {number}:",
                group.programs
            );
            let program = generate::program(seed, number);
            for (index, step) in program.steps.iter().enumerate().take(at + 1) {
                let answer = expected[number as usize][index];
                if index == at {
                    let _ = writeln!(text, "    {step} -> {answer}, not {}", got[number as usize][index]);
                } else {
                    let _ = writeln!(text, "    {step} -> {answer}");
                }
            }
        }
        if groups.len() > most {
            let _ = writeln!(text, "... and {} more kinds of differences", groups.len() - most);
        }
        for (reason, programs) in &self.allowed {
            let _ = writeln!(text, "allowed in {programs} programs: {reason}");
        }
        if self.not_compared != 0 {
            let _ = writeln!(text, "{} calls after a difference were not compared", self.not_compared);
        }
        if self.excluded != 0 {
            let _ =
                writeln!(text, "{} programs ended the process on the recorded device, and are excluded", self.excluded);
        }
        let _ = writeln!(text, "{} programs, {} calls, {} differ", self.programs, self.calls, self.differing);
        text
    }
}
