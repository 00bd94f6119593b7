//! Thread tags: texts that label the history entries of a thread.

use parking_lot::Mutex;
use std::{cell::Cell, collections::HashMap, sync::Arc};

#[derive(Default)]
struct Tags {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
}

static TAGS: Mutex<Option<Tags>> = Mutex::new(None);

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Returns the number of the calling thread's tag, or 0 if it has none.
#[inline]
pub fn current() -> u32 {
    CURRENT.with(Cell::get)
}

/// Sets the calling thread's tag; an empty text removes it. Each distinct text is stored once and never freed.
pub fn set(text: &str) {
    if text.is_empty() {
        return CURRENT.with(|tag| tag.set(0));
    }
    let mut tags = TAGS.lock();
    let tags = tags.get_or_insert_default();
    let number = match tags.numbers.get(text) {
        Some(number) => *number,
        // Once the numbers are used up, new tags are ignored.
        None => u32::try_from(tags.names.len() + 1).map_or(0, |number| {
            let name: Arc<str> = text.into();
            tags.names.push(name.clone());
            tags.numbers.insert(name, number);
            number
        }),
    };
    CURRENT.with(|tag| tag.set(number));
}

/// Returns the calling thread's tag, or an empty text if it has none.
pub fn get() -> Arc<str> {
    let index = (current() as usize).checked_sub(1);
    let tags = TAGS.lock();
    let name = index.and_then(|index| tags.as_ref()?.names.get(index).cloned());
    name.unwrap_or_else(|| "".into())
}

/// Returns the text of a tag.
pub fn name(number: u32) -> Option<Arc<str>> {
    let index = (number as usize).checked_sub(1)?;
    TAGS.lock().as_ref()?.names.get(index).cloned()
}

/// Returns all tags by number, starting with number 1.
pub fn names() -> Vec<Arc<str>> {
    TAGS.lock().as_ref().map(|tags| tags.names.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_own_tag() {
        assert_eq!(&*get(), "");
        set("one");
        let number = current();
        std::thread::spawn(move || {
            assert_eq!(current(), 0);
            set("two");
            set("one");
            assert_eq!(current(), number);
        })
        .join()
        .unwrap();
        assert_eq!((&*get(), names()[number as usize - 1].as_ref()), ("one", "one"));
        assert_eq!(name(number).as_deref(), Some("one"));
        set("");
        assert_eq!((current(), &*get(), name(0)), (0, "", None));
    }
}
