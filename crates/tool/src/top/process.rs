//! What Linux reports about a process: its user, command line and processor time.

use super::super::output::printable;
use procfs::{
    Current, Uptime, WithCurrentSystemInfo,
    process::{Process, Stat},
};
use std::{collections::HashMap, path::Path, time::Instant};

/// A process of this machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Details {
    /// The name of the program.
    pub name: String,
    /// The name of the user, or the number of a user without a name.
    pub user: String,
    /// The program with its arguments.
    pub command: Vec<String>,
    /// Per cent of one processor, since the previous reading.
    pub cpu: Option<f64>,
    /// Bytes of the machine's memory.
    pub resident: u64,
    /// Seconds since its start.
    pub seconds: u64,
}

impl Details {
    /// Returns the command line in one line. `short` leaves out the program's folder.
    pub fn line(&self, short: bool) -> String {
        // The name and the arguments of another user's process must not control the terminal.
        let Some((program, arguments)) = self.command.split_first() else {
            return format!("[{}]", printable(&self.name));
        };
        let file = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
        let program = file.filter(|_| short).unwrap_or_else(|| program.clone());
        let words: Vec<&str> = std::iter::once(program.as_str()).chain(arguments.iter().map(String::as_str)).collect();
        printable(&words.join(" "))
    }
}

/// Reads processes, and remembers their processor time between two readings.
#[derive(Default)]
pub struct Reader {
    /// When the processor time was read, and its clock ticks, by process.
    ticks: HashMap<u32, (Instant, u64)>,
    users: HashMap<u32, String>,
}

impl Reader {
    /// Reads a process; `None` if this machine or container has no process of that number.
    pub fn read(&mut self, pid: u32) -> Option<Details> {
        let process = Process::new(i32::try_from(pid).ok()?).ok()?;
        let stat = process.stat().ok()?;
        let user = process.uid().map_or_else(|_| "-".to_owned(), |user| self.user(user));
        let uptime = Uptime::current().map_or(0, |uptime| uptime.uptime as u64);
        Some(Details {
            cpu: self.cpu(pid, &stat),
            user,
            command: process.cmdline().unwrap_or_default(),
            resident: stat.rss_bytes().get(),
            seconds: uptime.saturating_sub(stat.starttime / procfs::ticks_per_second()),
            name: stat.comm,
        })
    }

    /// Forgets processes that were not read since `before`.
    pub fn forget(&mut self, before: Instant) {
        self.ticks.retain(|_, (read, _)| *read >= before);
    }

    fn cpu(&mut self, pid: u32, stat: &Stat) -> Option<f64> {
        let (now, ticks) = (Instant::now(), stat.utime + stat.stime);
        let (before, earlier) = self.ticks.insert(pid, (now, ticks))?;
        let seconds = now.duration_since(before).as_secs_f64();
        let used = ticks.checked_sub(earlier)? as f64 / procfs::ticks_per_second() as f64;
        (seconds > 0.0).then(|| 100.0 * used / seconds)
    }

    fn user(&mut self, number: u32) -> String {
        let name = || uzers::get_user_by_uid(number).map(|user| user.name().to_string_lossy().into_owned());
        self.users.entry(number).or_insert_with(|| name().unwrap_or_else(|| number.to_string())).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn this_process_is_read() {
        let mut reader = Reader::default();
        let pid = std::process::id();
        let first = reader.read(pid).unwrap();
        assert_eq!((first.cpu, first.command.is_empty()), (None, false));
        assert!(first.resident > 1 << 16, "{first:?}");
        let busy = Instant::now();
        while busy.elapsed() < Duration::from_millis(100) {}
        let cpu = reader.read(pid).unwrap().cpu.unwrap();
        assert!(cpu > 0.0, "{cpu}");
        reader.forget(Instant::now());
        assert_eq!(reader.read(pid).unwrap().cpu, None);
        assert_eq!(reader.read(u32::MAX), None);
    }

    #[test]
    fn a_command_line_is_one_line_without_control_characters() {
        let words = ["/usr/bin/python3", "train.py", "a\x1b[2Jb"].map(str::to_owned);
        let process = Details { name: "python3".into(), command: words.into(), ..Details::default() };
        assert_eq!(process.line(true), "python3 train.py a [2Jb");
        assert_eq!(process.line(false), "/usr/bin/python3 train.py a [2Jb");
        assert_eq!(Details { name: "k\x1b[2J".into(), ..Details::default() }.line(true), "[k [2J]");
    }
}
