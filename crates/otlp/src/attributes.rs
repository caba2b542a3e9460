//! Attributes of every data point.

use std::sync::{Arc, RwLock};

use opentelemetry::KeyValue;

/// Attributes of all data points, with unique names. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Arc<RwLock<Vec<KeyValue>>>);

impl Attributes {
    /// Adds attributes. An attribute replaces an earlier one of the same name.
    pub fn add(&self, more: impl IntoIterator<Item = KeyValue>) {
        let mut all = self.0.write().expect("no holder of this lock panics");
        for pair in more {
            all.retain(|other| other.key != pair.key);
            all.push(pair);
        }
    }

    /// Attributes of one data point. Its own take precedence over shared ones of the same name.
    pub fn with<const N: usize>(&self, own: [KeyValue; N]) -> Vec<KeyValue> {
        let shared = self.0.read().expect("no holder of this lock panics");
        let mut all = Vec::with_capacity(N + shared.len());
        let others = shared
            .iter()
            .filter(|pair| own.iter().all(|own| own.key != pair.key));
        all.extend(others.cloned());
        all.extend(own);
        all
    }
}

/// Parses a list such as `k=v,k2=v2`. Pairs without a name or a value are skipped.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.split(',').filter_map(|entry| entry.split_once('='));
    pairs
        .map(|(name, value)| (name.trim(), value.trim()))
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &'static str, value: &'static str) -> KeyValue {
        KeyValue::new(name, value)
    }

    #[test]
    fn the_last_attribute_of_a_name_counts() {
        let shared = Attributes::default();
        shared.add([pair("a", "0"), pair("c", "3")]);
        shared.add([pair("a", "1"), pair("id", "x"), pair("a", "2")]);
        let clone = shared.clone();
        clone.add([pair("id", "mine")]);
        let want = [pair("c", "3"), pair("a", "2"), pair("id", "mine")];
        assert_eq!(shared.with([]), want);
        let own = shared.with([pair("a", "own"), pair("b", "4")]);
        let want = [
            pair("c", "3"),
            pair("id", "mine"),
            pair("a", "own"),
            pair("b", "4"),
        ];
        assert_eq!(own, want);
    }

    #[test]
    fn pairs_without_name_or_value_are_left_out() {
        let read: Vec<_> = pairs(" a = 1 ,b=x=y,,c,=d,e= ,f=é").collect();
        assert_eq!(read, [("a", "1"), ("b", "x=y"), ("f", "é")]);
        assert_eq!(pairs("").count(), 0);
    }
}
