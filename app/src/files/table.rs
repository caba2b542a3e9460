//! Tables of values separated by commas, semicolons or tabs.

use leptos::prelude::*;

/// Most rows and cells of a table that a page shows.
const ROWS: usize = 500;
const CELLS: usize = 20_000;

/// Endings of such files.
const ENDINGS: [&str; 3] = [".csv", ".tsv", ".tab"];

/// Whether a file with this name holds a table.
pub(super) fn is_table(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| path.ends_with(ending))
}

/// The first rows of a text. The first one of all has the names of the columns.
#[component]
pub(super) fn TableView(
    name: String,
    text: String,
    /// Whether more of the file follows.
    is_part: bool,
) -> impl IntoView {
    let separator = separator(&name, &text);
    let label = name.clone();
    let (mut rows, mut is_cut) = rows(&text, separator);
    if is_part && !is_cut {
        // The last row may go on in the next part.
        rows.pop();
        is_cut = true;
    }
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let mut rows = rows.into_iter();
    let head = rows.next().unwrap_or_default();
    let head = filled(head, columns).map(|cell| view! { <th scope="col">{cell}</th> });
    let count = rows.len();
    let note = is_cut.then(|| {
        let note = format!("These are the first {count} rows. “As text” shows all of the file.");
        view! { <p class="help">{note}</p> }
    });
    let rows = rows.enumerate().map(|(number, row)| {
        let cells = filled(row, columns).map(|cell| view! { <td>{cell}</td> });
        view! {
            <tr>
                <th scope="row" class="num">
                    {number + 1}
                </th>
                {cells.collect_view()}
            </tr>
        }
    });
    view! {
        {note}
        <div class="file-table" tabindex="0" role="region" aria-label=label>
            <table>
                <caption class="visually-hidden">{name}</caption>
                <thead>
                    <tr>
                        <th scope="col">
                            <span class="visually-hidden">"Row"</span>
                        </th>
                        {head.collect_view()}
                    </tr>
                </thead>
                <tbody>{rows.collect_view()}</tbody>
            </table>
        </div>
    }
    .into_any()
}

/// A row with as many cells as the others.
fn filled(row: Vec<String>, columns: usize) -> impl Iterator<Item = String> {
    let missing = columns - row.len();
    row.into_iter()
        .chain(std::iter::repeat_n(String::new(), missing))
}

/// What is between the values.
fn separator(name: &str, text: &str) -> char {
    if !name.to_ascii_lowercase().ends_with(".csv") {
        return '\t';
    }
    let first = text.lines().next().unwrap_or_default();
    let count = |separator: char| first.matches(separator).count();
    // The comma, if none of them is in the line.
    let candidates = ['\t', ';', ','].into_iter();
    candidates.max_by_key(|it| count(*it)).unwrap_or(',')
}

/// The first rows of a text, and whether there are more (RFC 4180). A quotation mark that is not
/// closed goes on to the end.
fn rows(text: &str, separator: char) -> (Vec<Vec<String>>, bool) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut rows, mut row, mut cell) = (Vec::new(), Vec::new(), String::new());
    let (mut cells, mut is_quoted) = (0, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' if cell.is_empty() => is_quoted = true,
            c if c == separator && !is_quoted => {
                row.push(std::mem::take(&mut cell));
                cells += 1;
            }
            '\n' if !is_quoted => {
                if cell.ends_with('\r') {
                    cell.pop();
                }
                row.push(std::mem::take(&mut cell));
                cells += 1;
                rows.push(std::mem::take(&mut row));
                if rows.len() > ROWS || cells > CELLS {
                    return (rows, chars.peek().is_some());
                }
            }
            c => cell.push(c),
        }
        if cells > 2 * CELLS {
            // One endless row.
            rows.push(std::mem::take(&mut row));
            return (rows, true);
        }
    }
    if !cell.is_empty() || !row.is_empty() {
        row.push(cell);
        rows.push(row);
    }
    (rows, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_separated_and_may_be_quoted() {
        let read = |text: &str, separator| rows(text, separator).0;
        assert_eq!(read("a,b\n1,2\n", ','), [["a", "b"], ["1", "2"]]);
        assert_eq!(
            read("\u{feff}a;\"x;\"\"y\"\"\nz\"\r\n;", ';'),
            [["a", "x;\"y\"\nz"], ["", ""]]
        );
        assert_eq!(read("a\"b,c", ','), [["a\"b", "c"]]);
        assert_eq!(read("\"open,\n", ','), [["open,\n"]]);
        assert!(read("", ',').is_empty());
    }

    #[test]
    fn large_tables_are_cut() {
        let long = "a,b\n".repeat(ROWS * 2);
        let (first, more) = rows(&long, ',');
        assert_eq!((first.len(), more), (ROWS + 1, true));
        let wide = ",".repeat(CELLS * 3);
        let (first, more) = rows(&wide, ',');
        assert!(more && first[0].len() <= CELLS * 2 + 1);
        assert_eq!(
            rows(&"a\n".repeat(ROWS + 1), ','),
            (vec![vec!["a".to_owned()]; ROWS + 1], false)
        );
    }

    #[test]
    fn separators_are_known_by_ending_and_first_line() {
        assert_eq!(separator("a.TSV", "a,b"), '\t');
        assert_eq!(separator("a.csv", "a;b;c,d\n,,,,"), ';');
        assert_eq!(separator("a.csv", "a"), ',');
        assert!(is_table("/a/B.CSV") && is_table("x.tsv") && !is_table("/a.csv/b"));
    }
}
