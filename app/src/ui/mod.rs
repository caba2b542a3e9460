//! Small parts that several pages use.

pub(crate) mod ansi;
mod badge;
mod chart;
mod clock;
mod copy;
mod dialog;
mod icon;
mod in_place;
mod labels;
mod moment;
mod page_title;
mod pager;
mod retry;
#[cfg(test)]
pub(crate) mod sample;
mod settled;
mod sign_in;
mod sparkline;
mod table_head;
mod waiting;

pub(crate) use badge::Badge;
pub use badge::{OutcomeBadge, StateBadge};
pub use chart::{Chart, ChartData, Line, Unit, thinned, time_of};
pub(crate) use chart::{HEIGHT, POINTS, WIDTH, height_of, path, point};
pub use clock::{Age, Clock, Countdown, duration, utc};
pub use copy::{CodeBlock, CopyButton};
pub(crate) use dialog::close_signal;
pub use dialog::{Confirm, ConfirmDialog, Dialog, Question, Subject, Subjects};
pub use icon::{AssetRoot, Icon};
pub(crate) use in_place::{NotOffered, NotShown};
pub use labels::Labels;
pub use moment::{AtMinute, Expiry, LocalTimes, When, until};
pub(crate) use page_title::PageTitle;
pub(crate) use pager::{BeyondPages, Pager};
pub use retry::LoadError;
pub(crate) use settled::settled;
pub(crate) use sign_in::SignInLink;
pub use sparkline::Sparkline;
pub use table_head::{ColumnTitle, TableHead};
pub(crate) use waiting::waiting;
