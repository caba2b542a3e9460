//! The configuration in force, by section.

use leptos::prelude::*;

use crate::{
    ui::{ColumnTitle, Icon, TableHead},
    view::{ConfigView, SettingView},
};

/// Titles of the columns of settings.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Key"),
    ColumnTitle::new("Value"),
    ColumnTitle::new("From"),
];

/// Settings of one section: its name and its keys without that name.
fn sections(settings: Vec<SettingView>) -> Vec<(String, Vec<SettingView>)> {
    let mut sections: Vec<(String, Vec<SettingView>)> = Vec::new();
    for setting in settings {
        let name = setting.key.split('.').next().unwrap_or_default().to_owned();
        match sections.iter_mut().find(|(known, _)| *known == name) {
            Some((_, settings)) => settings.push(setting),
            None => sections.push((name, vec![setting])),
        }
    }
    sections
}

/// The configuration.
#[component]
pub(super) fn ConfigCards(config: ConfigView) -> impl IntoView {
    let ConfigView {
        build,
        file,
        settings,
        notes,
        environment,
        metrics,
        ..
    } = config;
    let note = |text: String| {
        view! {
            <p class="banner" data-tone="busy">
                <Icon name="info" />
                <span>{text}</span>
            </p>
        }
    };
    let environment = match environment.is_empty() {
        true => "none is set".to_owned(),
        false => environment.join(", "),
    };
    let section = |(name, settings)| view! { <Section name settings /> };
    view! {
        <section class="card config" aria-labelledby="config-title">
            <h2 id="config-title">"Configuration"</h2>
            <p class="help">
                "What is in force since the start of the server, and where each value comes from. Secrets are masked. Changes in the file take effect at the next start."
            </p>
            <dl class="facts">
                <dt>"Build"</dt>
                <dd>{build}</dd>
                <dt>"File"</dt>
                <dd class="mono">{file}</dd>
                <dt>"Variables"</dt>
                <dd class="mono">{environment}</dd>
                <dt>"Metrics"</dt>
                <dd>{metrics}</dd>
            </dl>
            {notes.into_iter().map(note).collect_view()}
            {sections(settings).into_iter().map(section).collect_view()}
        </section>
    }
    .into_any()
}

#[component]
fn Section(name: String, settings: Vec<SettingView>) -> impl IntoView {
    let set = settings.iter().filter(|setting| setting.is_set).count();
    let count = match set {
        0 => "all by default".to_owned(),
        set => format!("{set} of {} set", settings.len()),
    };
    let row = |setting: SettingView| {
        view! {
            <tr data-set=setting.is_set.then_some("true")>
                <th scope="row" class="mono">{setting.key}</th>
                <td class="mono">{setting.value}</td>
                <td>{setting.origin}</td>
            </tr>
        }
    };
    view! {
        <details class="config-section" open=set != 0>
            <summary>
                <span class="mono">{format!("[{name}]")}</span>
                " "
                <span class="fine">{count}</span>
            </summary>
            <table class="plain-table">
                <TableHead of=TITLES />
                <tbody>{settings.into_iter().map(row).collect_view()}</tbody>
            </table>
        </details>
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_grouped_in_their_order() {
        let setting = |key: &str| SettingView {
            key: key.to_owned(),
            value: String::new(),
            origin: String::new(),
            is_set: false,
        };
        let keys = ["server.host", "log.level", "server.tls.key"];
        let grouped = sections(keys.map(setting).into());
        let names: Vec<_> = grouped
            .iter()
            .map(|(name, settings)| (name.as_str(), settings.len()))
            .collect();
        assert_eq!(names, [("server", 2), ("log", 1)]);
    }
}
