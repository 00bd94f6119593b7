//! The file of a record: what a device answered to programs that are made again from their seed.
//!
//! A line of text describes the record. A compressed part follows: the distinct answers, most frequent first, then for
//! each kind of call the numbers of its answers, and the programs with fewer answers than calls.

use super::{answer::Answer, generate, program::Kind};
use miniz_oxide::{deflate, inflate};
use std::collections::BTreeMap;

/// What a device answered to the first programs of a seed.
pub struct Record {
    pub seed: u64,
    /// The device and the version of its driver.
    pub device: String,
    pub answers: Vec<Vec<Answer>>,
}

const MAGIC: &str = "plinth-conformance";

fn write_number(output: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        output.push(number as u8 | 0x80);
        number >>= 7;
    }
    output.push(number as u8);
}

fn read_number(input: &mut &[u8]) -> Option<u32> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (byte, rest) = input.split_first()?;
        *input = rest;
        number |= u32::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
}

fn zigzag(number: i32) -> u32 {
    ((number << 1) ^ (number >> 31)) as u32
}

fn unzigzag(number: u32) -> i32 {
    (number >> 1) as i32 ^ -((number & 1) as i32)
}

impl Record {
    /// Returns the bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut frequencies = BTreeMap::<Answer, usize>::new();
        for answer in self.answers.iter().flatten() {
            *frequencies.entry(*answer).or_default() += 1;
        }
        let mut distinct: Vec<(Answer, usize)> = frequencies.into_iter().collect();
        distinct.sort_by_key(|(answer, count)| (std::cmp::Reverse(*count), *answer));
        let numbers: BTreeMap<Answer, u32> =
            distinct.iter().enumerate().map(|(number, (answer, _))| (*answer, number as u32)).collect();
        let mut plain = Vec::new();
        write_number(&mut plain, distinct.len() as u32);
        for (answer, _) in &distinct {
            answer.to_numbers().into_iter().for_each(|number| write_number(&mut plain, zigzag(number)));
        }
        let mut columns = vec![Vec::new(); Kind::ALL.len()];
        let mut short = Vec::new();
        for (number, answers) in self.answers.iter().enumerate() {
            let program = generate::program(self.seed, number as u32);
            for (step, answer) in program.steps.iter().zip(answers) {
                write_number(&mut columns[step.kind as usize], numbers[answer]);
            }
            if answers.len() != program.steps.len() {
                short.push((number as u32, answers.len() as u32));
            }
        }
        write_number(&mut plain, short.len() as u32);
        for (number, count) in short {
            write_number(&mut plain, number);
            write_number(&mut plain, count);
        }
        for column in columns {
            write_number(&mut plain, column.len() as u32);
            plain.extend(column);
        }
        let mut bytes = format!(
            "{MAGIC} {} seed {} programs {} device {}\n",
            generate::VERSION,
            self.seed,
            self.answers.len(),
            self.device
        )
        .into_bytes();
        bytes.extend(deflate::compress_to_vec(&plain, 9));
        bytes
    }

    /// Reads a file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Record, String> {
        let wrong = || "this is not a record of conformance, or it is damaged".to_owned();
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(wrong)?;
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| wrong())?;
        let mut words = line.split(' ');
        let mut field = |name: &str| {
            if words.next() == Some(name) { words.next().and_then(|word| word.parse::<u64>().ok()) } else { None }
        };
        let generator = line.starts_with(MAGIC).then(|| field(MAGIC)).flatten().ok_or_else(wrong)? as u32;
        if generator != generate::VERSION {
            return Err(format!(
                "the record is of version {generator} of the generator, and this is version {}; record again",
                generate::VERSION
            ));
        }
        let seed = field("seed").ok_or_else(wrong)?;
        let programs = field("programs").ok_or_else(wrong)? as u32;
        let device = line.split_once(" device ").ok_or_else(wrong)?.1.to_owned();
        let plain = inflate::decompress_to_vec(&bytes[end + 1..]).map_err(|_| wrong())?;
        let answers = read_answers(&plain, seed, programs).ok_or_else(wrong)?;
        Ok(Record { seed, device, answers })
    }
}

fn read_answers(mut plain: &[u8], seed: u64, programs: u32) -> Option<Vec<Vec<Answer>>> {
    let input = &mut plain;
    let mut distinct = Vec::new();
    for _ in 0..read_number(input)? {
        let mut numbers = [0; 4];
        for number in &mut numbers {
            *number = unzigzag(read_number(input)?);
        }
        distinct.push(Answer::from_numbers(numbers));
    }
    let mut short = BTreeMap::new();
    for _ in 0..read_number(input)? {
        short.insert(read_number(input)?, read_number(input)? as usize);
    }
    let mut columns = Vec::new();
    for _ in Kind::ALL {
        let length = read_number(input)? as usize;
        let (column, rest) = input.split_at_checked(length)?;
        columns.push(column);
        *input = rest;
    }
    let mut answers = Vec::new();
    for number in 0..programs {
        let program = generate::program(seed, number);
        let count = short.get(&number).copied().unwrap_or(program.steps.len());
        let mut of_program = Vec::new();
        for step in program.steps.iter().take(count) {
            let number = read_number(columns.get_mut(step.kind as usize)?)?;
            of_program.push(*distinct.get(number as usize)?);
        }
        answers.push(of_program);
    }
    Some(answers)
}

/// Writes a program's answers for the parent process.
pub fn encode_program(answers: &[Answer]) -> Vec<u8> {
    let mut bytes = (answers.len() as u32).to_le_bytes().to_vec();
    for number in answers.iter().flat_map(|answer| answer.to_numbers()) {
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

/// Reads a program's answers from a worker process; `None` at its end.
pub fn read_program(input: &mut impl std::io::Read) -> Option<Vec<Answer>> {
    let mut word = [0; 4];
    input.read_exact(&mut word).ok()?;
    let mut answers = Vec::new();
    for _ in 0..u32::from_le_bytes(word) {
        let mut numbers = [0; 4];
        for number in &mut numbers {
            input.read_exact(&mut word).ok()?;
            *number = i32::from_le_bytes(word);
        }
        answers.push(Answer::from_numbers(numbers));
    }
    Some(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_a_file() {
        let answers: Vec<Vec<Answer>> = (0..30)
            .map(|number| {
                let count = generate::program(5, number).steps.len() as u32;
                let count = if number == 7 { 1 } else { count };
                (0..count).map(|step| Answer::value(0, (step * number) as i32 - 40)).collect()
            })
            .collect();
        let record = Record { seed: 5, device: "some device, driver 1".to_owned(), answers };
        let read = Record::from_bytes(&record.to_bytes()).unwrap();
        assert_eq!((read.seed, &read.device), (record.seed, &record.device));
        assert_eq!(read.answers, record.answers);
        assert!(Record::from_bytes(&record.to_bytes()[..100]).is_err());
        assert!(Record::from_bytes(b"something else\n").is_err());
    }
}
