//! The part of the time that the charts show, as the address says it.

use super::series::{Range, Stretch};

/// Shortest part that is shown, in seconds.
const SHORTEST: i64 = 10;

/// What the address says about the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) range: Range,
    /// The part of the range, if not all of it is shown.
    pub(super) window: Option<Stretch>,
    pub(super) has_table: bool,
}

impl View {
    pub(super) fn of(get: impl Fn(&str) -> Option<String>) -> Self {
        let second = |name| get(name)?.parse::<i64>().ok().filter(|it| *it >= 0);
        let window = second("from").zip(second("to"));
        Self {
            range: Range::of_key(&get("range").unwrap_or_default()),
            window: window.filter(|(from, to)| from < to),
            has_table: get("table").is_some(),
        }
    }

    pub(super) fn query(self) -> String {
        let mut query = format!("?range={}", self.range.key());
        if let Some((from, to)) = self.window {
            query += &format!("&from={from}&to={to}");
        }
        if self.has_table {
            query += "&table=on";
        }
        query
    }
}

/// How a window is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// The half before.
    Earlier,
    /// The half after.
    Later,
    /// The half in the middle.
    In,
    /// Twice as much.
    Out,
    /// All of the range.
    Whole,
}

impl Move {
    pub(super) const ALL: [Self; 5] =
        [Self::Earlier, Self::Later, Self::In, Self::Out, Self::Whole];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Earlier => "Earlier",
            Self::Later => "Later",
            Self::In => "Zoom in",
            Self::Out => "Zoom out",
            Self::Whole => "Whole time",
        }
    }

    /// The next window after the one that is shown of all of the range; `None` is all of it.
    pub(super) fn of(self, (from, to): Stretch, (first, last): Stretch) -> Option<Stretch> {
        let span = to - from;
        let (from, to) = match self {
            Self::Whole => return None,
            Self::In if span < 2 * SHORTEST => (from, to),
            Self::In => (from + span / 4, to - span / 4),
            Self::Out => (from - span / 2, to + span / 2),
            Self::Earlier => (from - span / 2, to - span / 2),
            Self::Later => (from + span / 2, to + span / 2),
        };
        let span = (to - from).min(last - first);
        let from = from.clamp(first, (last - span).max(first));
        (from > first || from + span < last).then_some((from, from + span))
    }
}

/// The part between two places in thousandths of what is shown.
pub(super) fn chosen((from, to): Stretch, places: (i64, i64)) -> Stretch {
    let moment = |place: i64| from + (to - from) * place / 1_000;
    let (start, end) = (
        moment(places.0.min(places.1)),
        moment(places.0.max(places.1)),
    );
    (start, end.max(start + SHORTEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_holds_the_view() {
        let of = |query: &str| {
            let pairs: Vec<_> = query
                .trim_start_matches('?')
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .collect();
            View::of(|name| {
                let found = pairs.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let view = View {
            range: Range::Hour,
            window: Some((1_000, 1_060)),
            has_table: true,
        };
        assert_eq!(of(&view.query()), view);
        for query in ["?from=9&to=9", "?from=9", "?from=-5&to=9", "?from=a&to=b"] {
            assert_eq!(of(query), View::default(), "{query}");
        }
    }

    #[test]
    fn windows_stay_within_the_range() {
        let (whole, shown) = ((0, 1_000), (400, 600));
        assert_eq!(Move::In.of(shown, whole), Some((450, 550)));
        assert_eq!(Move::Out.of(shown, whole), Some((300, 700)));
        assert_eq!(Move::Earlier.of(shown, whole), Some((300, 500)));
        assert_eq!(Move::Later.of((850, 950), whole), Some((900, 1_000)));
        assert_eq!(Move::Earlier.of((20, 220), whole), Some((0, 200)));
        assert_eq!(Move::Out.of((200, 900), whole), None);
        assert_eq!(Move::Whole.of(shown, whole), None);
        assert_eq!(Move::In.of(whole, whole), Some((250, 750)));
        let shortest = (500, 500 + SHORTEST);
        assert_eq!(Move::In.of(shortest, whole), Some(shortest));
    }

    #[test]
    fn a_stretch_is_chosen_in_either_direction() {
        assert_eq!(chosen((1_000, 2_000), (250, 750)), (1_250, 1_750));
        assert_eq!(chosen((1_000, 2_000), (750, 250)), (1_250, 1_750));
        assert_eq!(chosen((1_000, 1_100), (0, 20)), (1_000, 1_010));
    }
}
