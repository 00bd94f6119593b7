//! Tests of the sanitizer: programs with a known verdict, and random ones against a search.

mod programs;
mod search;
