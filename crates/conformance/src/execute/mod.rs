//! Runs programs on a device through the table of driver calls.

mod clean;
pub mod gate;
mod graph;
mod memory;
mod state;
mod stream;
mod virtual_memory;

use super::{
    answer::Answer,
    program::{Kind, Program, Step},
};
use plinth_driver::Table;
use state::State;
use std::{
    sync::{Arc, Mutex, MutexGuard, mpsc},
    thread,
};

/// What a thread of a program is to do.
enum Job {
    Step(Step),
    /// End the thread's captures and restore its mode.
    Leave,
}

/// A device and the threads that make calls to it.
pub struct Executor {
    state: Arc<Mutex<State>>,
    threads: Vec<(mpsc::Sender<Job>, mpsc::Receiver<Answer>)>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Executor {
    /// Initializes the driver and creates what all programs share.
    pub fn new(table: Table, is_gpu: bool) -> Result<Executor, String> {
        let state = Arc::new(Mutex::new(State::new(table, is_gpu)?));
        let threads = (1..3)
            .map(|number| {
                let ((jobs, todo), (done, answers)) = (mpsc::channel(), mpsc::channel());
                let state = state.clone();
                thread::spawn(move || {
                    lock(&state).enter_thread();
                    for job in todo {
                        let answer = do_job(&state, number, &job);
                        if done.send(answer).is_err() {
                            return;
                        }
                    }
                });
                (jobs, answers)
            })
            .collect();
        Ok(Executor { state, threads })
    }

    /// Runs a program. Also returns whether the device is as before it, so that another program can run.
    pub fn run(&mut self, program: &Program, mut trace: impl FnMut(&Step, Option<Answer>)) -> (Vec<Answer>, bool) {
        let mut answers = Vec::with_capacity(program.steps.len());
        for step in &program.steps {
            trace(step, None);
            let answer = if step.kind == Kind::Cleanup {
                self.clean(program)
            } else {
                self.on_thread(step.thread, Job::Step(*step))
            };
            trace(step, Some(answer));
            answers.push(answer);
        }
        let is_clean = answers.last().is_none_or(|last| last.status == 0 && last.values == [0; 3]);
        (answers, is_clean)
    }

    fn on_thread(&self, thread: u8, job: Job) -> Answer {
        let Some((jobs, answers)) = usize::from(thread).checked_sub(1).and_then(|index| self.threads.get(index)) else {
            return do_job(&self.state, 0, &job);
        };
        if jobs.send(job).is_err() {
            return Answer::CRASHED;
        }
        answers.recv().unwrap_or(Answer::CRASHED)
    }

    fn clean(&self, program: &Program) -> Answer {
        gate::open();
        let threads = program.steps.iter().map(|step| step.thread).max().unwrap_or(0);
        for thread in 0..=threads {
            self.on_thread(thread, Job::Leave);
        }
        lock(&self.state).clean()
    }
}

fn do_job(state: &Mutex<State>, thread: u8, job: &Job) -> Answer {
    let mut state = lock(state);
    match job {
        Job::Step(step) => state.step(step, thread).unwrap_or(Answer::SKIPPED),
        Job::Leave => {
            state.leave_thread(thread);
            Answer::status(0)
        }
    }
}
