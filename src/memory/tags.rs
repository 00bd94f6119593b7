//! The texts of history entries: the tag of the thread and the name of the block, stored as one number.

use parking_lot::Mutex;
use std::{cell::Cell, collections::HashMap, sync::Arc};

/// The texts of a history entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Texts {
    /// The tag of the thread.
    pub tag: Option<Arc<str>>,
    /// The name of the block.
    pub name: Option<Arc<str>>,
}

#[derive(Default)]
struct Tags {
    numbers: HashMap<Texts, u32>,
    texts: Vec<Texts>,
}

static TAGS: Mutex<Option<Tags>> = Mutex::new(None);

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

/// Returns the number of texts. Distinct texts are stored once and never freed. Empty texts have number 0.
fn number(texts: Texts) -> u32 {
    if texts == Texts::default() {
        return 0;
    }
    let mut tags = TAGS.lock();
    let tags = tags.get_or_insert_default();
    match tags.numbers.get(&texts) {
        Some(number) => *number,
        // Once the numbers are used up, new texts are ignored.
        None => u32::try_from(tags.texts.len() + 1).map_or(0, |number| {
            tags.texts.push(texts.clone());
            tags.numbers.insert(texts, number);
            number
        }),
    }
}

/// Returns the number of the calling thread's tag, or 0 if it has none.
#[inline]
pub fn current() -> u32 {
    CURRENT.with(Cell::get)
}

/// Sets the calling thread's tag; an empty text removes it.
pub fn set(text: &str) {
    let tag = Some(text).filter(|text| !text.is_empty()).map(Arc::from);
    let number = number(Texts { tag, name: None });
    CURRENT.with(|current| current.set(number));
}

/// Returns the number of the texts that have a name in addition to the tag of `tag`.
pub fn with_name(tag: u32, name: Arc<str>) -> u32 {
    number(Texts { tag: texts(tag).tag, name: Some(name) })
}

/// Returns the calling thread's tag, or an empty text if it has none.
pub fn get() -> Arc<str> {
    texts(current()).tag.unwrap_or_else(|| "".into())
}

/// Returns the texts with a number.
pub fn texts(number: u32) -> Texts {
    let stored = |index: usize| TAGS.lock().as_ref()?.texts.get(index).cloned();
    (number as usize).checked_sub(1).and_then(stored).unwrap_or_default()
}

/// Returns all texts by number, starting with number 1.
pub fn all() -> Vec<Texts> {
    TAGS.lock().as_ref().map(|tags| tags.texts.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_a_tag_and_a_name() {
        set("tag");
        let both = with_name(current(), "block".into());
        assert_eq!(texts(both), Texts { tag: Some("tag".into()), name: Some("block".into()) });
        assert_eq!((with_name(current(), "block".into()), with_name(both, "block".into())), (both, both));
        set("");
        assert_eq!(texts(with_name(0, "block".into())), Texts { tag: None, name: Some("block".into()) });
        assert_ne!(with_name(0, "block".into()), both);
    }

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
        assert_eq!((&*get(), all()[number as usize - 1].tag.as_deref()), ("one", Some("one")));
        assert_eq!(texts(number), Texts { tag: Some("one".into()), name: None });
        set("");
        assert_eq!((current(), &*get(), texts(0)), (0, "", Texts::default()));
    }
}
