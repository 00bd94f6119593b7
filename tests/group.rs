//! Process groups, on the host device unless PLINTH_DEVICE says otherwise: each rank is its own process, except in a few tests with several ranks in one.
//!
//! A test runs this binary again for each rank of a scenario, and expects each to end as specified within a time limit.
//! With PLINTH_DEVICE=cuda the ranks share the GPUs of the machine, so that one is enough for any number of ranks.

#[path = "group/faults.rs"]
mod faults;
#[path = "group/numbers.rs"]
mod numbers;
#[path = "group/rank.rs"]
mod rank;
#[path = "group/rendezvous.rs"]
mod rendezvous;
#[path = "group/values.rs"]
mod values;

use plinth::internal::collectives::processes::ProcessGroup;
use std::{
    io::Read,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A scenario: its name, and what each rank does.
type Scenario = (&'static str, fn());

const SCENARIOS: &[&[Scenario]] = &[numbers::SCENARIOS, faults::SCENARIOS, rendezvous::SCENARIOS];
const TIMEOUT: Duration = Duration::from_secs(120);

/// Not a test itself: the entry point of the processes that the tests start.
#[test]
fn child() {
    let Ok(name) = std::env::var("PLINTH_TEST_SCENARIO") else { return };
    let scenario = SCENARIOS.iter().flat_map(|some| some.iter()).find(|(known, _)| *known == name);
    scenario.unwrap_or_else(|| panic!("no scenario {name}")).1();
}

/// A process that is killed if the test does not wait for it.
pub struct Rank(Child);

impl Rank {
    /// Kills it.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// Waits for its end, and returns whether it succeeded and its output.
    pub fn end(mut self) -> (bool, String) {
        let start = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            if start.elapsed() > TIMEOUT {
                self.kill();
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.0.wait().unwrap().success(), text)
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts the ranks of a scenario. "{rank}" in the environment is replaced by each rank.
pub fn start(scenario: &str, size: u32, environment: &[(&str, &str)]) -> Vec<Rank> {
    let kind = std::env::var("PLINTH_DEVICE").unwrap_or_else(|_| "host".into());
    let shared = if kind == "host" { "" } else { ",shared_gpu=1" };
    let ids = [0; 2].map(|_| hex(&ProcessGroup::new_id().unwrap())).join(",");
    let rank = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "child", "--nocapture"])
            .envs([("PLINTH_TEST_SCENARIO", scenario), ("PLINTH_TEST_ID", &ids), ("PLINTH_DEVICE", &kind)])
            .env("PLINTH_TEST_RANK", format!("{rank}"))
            .env("PLINTH_TEST_SIZE", format!("{size}"))
            .env("PLINTH_HOST_DEVICES", "4")
            .env("PLINTH_GROUP_TUNING", shared)
            .envs(environment.iter().map(|(key, value)| {
                let tuning = if *key == "PLINTH_GROUP_TUNING" { shared } else { "" };
                (key, value.replace("{rank}", &format!("{rank}")) + tuning)
            }))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Rank(command.spawn().unwrap())
    };
    (0..size).map(rank).collect()
}

/// Runs a scenario, and checks that each rank succeeds.
pub fn run(scenario: &str, size: u32, environment: &[(&str, &str)]) {
    let ends: Vec<_> = start(scenario, size, environment).into_iter().map(Rank::end).collect();
    // Report all failures, because one often causes another.
    let failed = ends.iter().enumerate().filter(|(_, (success, _))| !success);
    let failures: Vec<String> =
        failed.map(|(rank, (_, text))| format!("rank {rank} of {size} in {scenario}: {text}")).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
