//! The differences between a GPU and the host device that are allowed, each with its reason.

use super::{
    answer::Answer,
    program::{Kind, Program},
};

const INVALID_VALUE: i32 = 1;
const NOT_READY: i32 = 600;

/// Returns why the difference at a step is allowed; `None` if it is not.
pub fn allowed(program: &Program, at: usize, expected: &[Answer], got: Answer) -> Option<&'static str> {
    let before = || program.steps[..at].iter().map(|step| step.kind);
    let is_query = matches!(program.steps[at].kind, Kind::StreamQuery | Kind::EventQuery | Kind::EventElapsed);
    let mut statuses = [expected[at].status, got.status];
    statuses.sort_unstable();
    if program.steps[at].kind == Kind::ErrorName && expected[at].status == INVALID_VALUE {
        return Some("the host device also names errors of newer drivers");
    }
    // `OpenGate` and `CloseGate` alternate.
    let is_closed = before().filter(|kind| matches!(kind, Kind::CloseGate | Kind::OpenGate)).count() % 2 == 1;
    if is_query && is_closed && statuses == [0, NOT_READY] {
        return Some(
            "which records and waits of a blocking stream queue behind a busy default stream depends on a GPU's queues",
        );
    }
    if uses_destroyed_graph(program, at, expected) {
        return Some("the program uses a graph that a failed capture destroyed, which CUDA leaves undefined");
    }
    None
}

/// Returns whether a capture into a graph failed before a step. A GPU's driver then destroys the graph, so that later
/// uses of its handle, and of those of its nodes, are undefined.
fn uses_destroyed_graph(program: &Program, at: usize, expected: &[Answer]) -> bool {
    let mut capturing = Vec::new();
    for (step, answer) in program.steps[..at].iter().zip(expected) {
        match step.kind {
            Kind::BeginCaptureToGraph if answer.status == 0 => capturing.push(step.arguments[0]),
            Kind::EndCapture if capturing.contains(&step.arguments[0]) => {
                if answer.status == 0 {
                    capturing.retain(|stream| *stream != step.arguments[0]);
                } else if answer.status != 401 {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}
