//! What a call answered.

use std::fmt;

/// The status of a call and those of its outputs that every device must answer equally.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Answer {
    pub status: i32,
    pub values: [i32; 3],
}

impl Answer {
    /// The call was not made, because an object that it names does not exist.
    pub const SKIPPED: Answer = Answer { status: -1, values: [0; 3] };
    /// The process ended in this program, or waited for the closed gate. Such a program is not compared.
    pub const CRASHED: Answer = Answer { status: -2, values: [0; 3] };

    /// Creates the answer of a call without outputs.
    pub fn status(code: u32) -> Answer {
        Answer { status: code as i32, values: [0; 3] }
    }

    /// Creates the answer of a call whose outputs count only if it succeeded.
    pub fn with(code: u32, values: [i32; 3]) -> Answer {
        if code == 0 { Answer { status: 0, values } } else { Answer::status(code) }
    }

    /// Creates the answer of a call with one output.
    pub fn value(code: u32, value: i32) -> Answer {
        Answer::with(code, [value, 0, 0])
    }

    pub fn to_numbers(self) -> [i32; 4] {
        let [first, second, third] = self.values;
        [self.status, first, second, third]
    }

    pub fn from_numbers([status, first, second, third]: [i32; 4]) -> Answer {
        Answer { status, values: [first, second, third] }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            Answer::SKIPPED => write!(f, "not made"),
            Answer::CRASHED => write!(f, "the process ended"),
            Answer { status, values: [0, 0, 0] } => write!(f, "{status}"),
            Answer { status, values: [first, second, third] } => write!(f, "{status} ({first}, {second}, {third})"),
        }
    }
}
