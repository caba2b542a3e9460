//! Tables of values separated by commas, semicolons or tabs.

use leptos::prelude::*;

/// Most rows and columns of a table that a page shows, without the names of the columns.
const ROWS: usize = 500;
const COLUMNS: usize = 200;
/// Most cells that a page shows. Every row has as many as the widest one: a file of a single wide row
/// and many short ones would otherwise stop the browser.
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
    let mut table = Table::read(&text, separator);
    if is_part && !table.has_more_rows {
        // The last row may go on in the next part. One that is alone is better than nothing.
        if table.rows.len() > 1 {
            table.rows.pop();
        }
        table.has_more_rows = true;
    }
    let note = table.note();
    let note = note.map(|note| view! { <p class="help">{note}</p> });
    let columns = table.columns();
    let mut rows = table.rows.into_iter();
    let head = rows.next().unwrap_or_default();
    let head = filled(head, columns).map(|cell| view! { <th scope="col">{cell}</th> });
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
    let missing = columns.saturating_sub(row.len());
    row.into_iter()
        .take(columns)
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

/// Adds a cell to a row. Of those that are not shown, the first one is enough.
fn add_cell(row: &mut Vec<String>, cell: String) {
    if row.len() <= COLUMNS {
        row.push(cell);
    }
}

/// What a page shows of a table.
#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    /// The names of the columns, and then the values. A row with more columns than are shown has one
    /// more cell than them.
    rows: Vec<Vec<String>>,
    /// Whether rows follow that are not shown.
    has_more_rows: bool,
}

impl Table {
    /// Reads the first rows of a text (RFC 4180). A quotation mark that is not closed goes on to the
    /// end.
    fn read(text: &str, separator: char) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut table = Self::default();
        let (mut row, mut cell, mut is_quoted) = (Vec::new(), String::new(), false);
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
                    add_cell(&mut row, std::mem::take(&mut cell));
                }
                '\n' if !is_quoted => {
                    if cell.ends_with('\r') {
                        cell.pop();
                    }
                    add_cell(&mut row, std::mem::take(&mut cell));
                    table.add_row(std::mem::take(&mut row));
                    if table.has_more_rows {
                        return table;
                    }
                }
                c => cell.push(c),
            }
        }
        if !cell.is_empty() || !row.is_empty() {
            add_cell(&mut row, cell);
            table.add_row(row);
        }
        table
    }

    /// Adds a row, if there is room for it once every row is as wide as the widest one.
    fn add_row(&mut self, row: Vec<String>) {
        let columns = self.columns().max(row.len().min(COLUMNS));
        let count = self.rows.len() + 1;
        // The names of the columns are a row too.
        match count <= ROWS + 1 && count * columns <= CELLS {
            true => self.rows.push(row),
            false => self.has_more_rows = true,
        }
    }

    /// Cells of the widest row.
    fn widest(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// Columns that are shown.
    fn columns(&self) -> usize {
        self.widest().min(COLUMNS)
    }

    /// What is not shown of the file, in words.
    fn note(&self) -> Option<String> {
        let rows = self.rows.len().saturating_sub(1);
        let shown = match (self.has_more_rows, self.widest() > COLUMNS) {
            (false, false) => return None,
            (true, false) => format!("{rows} rows"),
            (false, true) => format!("{COLUMNS} columns"),
            (true, true) => format!("{rows} rows and {COLUMNS} columns"),
        };
        Some(format!(
            "These are the first {shown}. “As text” shows all of the file."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_separated_and_may_be_quoted() {
        let read = |text: &str, separator| Table::read(text, separator).rows;
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
    fn long_tables_are_cut() {
        let long = Table::read(&"a,b\n".repeat(ROWS * 2), ',');
        assert_eq!((long.rows.len(), long.columns()), (ROWS + 1, 2));
        let note = long.note().unwrap();
        assert!(note.contains("the first 500 rows."), "{note}");
        let whole = Table::read(&"a\n".repeat(ROWS + 1), ',');
        assert_eq!(whole.rows, vec![vec!["a".to_owned()]; ROWS + 1]);
        assert_eq!(whole.note(), None);
    }

    #[test]
    fn wide_tables_are_cut() {
        let endless = Table::read(&",".repeat(CELLS * 3), ',');
        assert_eq!((endless.rows.len(), endless.columns()), (1, COLUMNS));
        let note = endless.note().unwrap();
        assert!(note.contains("the first 200 columns."), "{note}");
        // What follows a wide row is read from its beginning.
        let wide = format!("{}\na,b\n", ",".repeat(COLUMNS));
        let wide = Table::read(&wide, ',');
        assert_eq!(wide.rows[1], ["a", "b"]);
        assert_eq!((wide.columns(), wide.has_more_rows), (COLUMNS, false));
        let cells = filled(wide.rows[0].clone(), wide.columns()).count();
        assert_eq!(cells, COLUMNS);
        assert!(wide.note().is_some());
        let exact = Table::read(&",".repeat(COLUMNS - 1), ',');
        assert_eq!((exact.columns(), exact.note()), (COLUMNS, None));
    }

    #[test]
    fn one_wide_row_does_not_multiply_the_short_ones() {
        let (short, wide) = ("a\n", format!("{}\n", ",".repeat(CELLS)));
        for (text, shown) in [
            (
                format!("{wide}{}", short.repeat(ROWS)),
                "99 rows and 200 columns",
            ),
            (format!("{}{wide}", short.repeat(ROWS)), "499 rows"),
            (
                format!("{}{wide}{}", short.repeat(50), short.repeat(ROWS)),
                "99 rows and 200 columns",
            ),
        ] {
            let table = Table::read(&text, ',');
            let cells = table.rows.len() * table.columns();
            assert!(cells <= CELLS, "{cells} cells");
            let note = table.note().unwrap();
            assert!(note.contains(&format!("the first {shown}.")), "{note}");
        }
    }

    #[test]
    fn separators_are_known_by_ending_and_first_line() {
        assert_eq!(separator("a.TSV", "a,b"), '\t');
        assert_eq!(separator("a.csv", "a;b;c,d\n,,,,"), ';');
        assert_eq!(separator("a.csv", "a"), ',');
        assert!(is_table("/a/B.CSV") && is_table("x.tsv") && !is_table("/a.csv/b"));
    }
}
