//! Subscriptions to events, with what became of their last messages.

use leptos::prelude::*;
use osb_protocol::webhook::WebhookDelivery;

use crate::{
    ui::{Icon, When},
    view::WebhookView,
};

/// All subscriptions.
#[component]
pub(super) fn WebhooksCard(webhooks: Vec<WebhookView>) -> impl IntoView {
    let content = match webhooks.is_empty() {
        true => view! {
            <p class="help">
                "No receiver is informed of events. Add one to the configuration, or with POST /v1/webhooks."
            </p>
        }
        .into_any(),
        false => {
            let row = |webhook| view! { <Row webhook /> };
            view! {
                <ul class="webhooks">{webhooks.into_iter().map(row).collect_view()}</ul>
            }
            .into_any()
        }
    };
    view! {
        <section class="card" aria-labelledby="webhooks-title">
            <h2 id="webhooks-title">"Webhooks"</h2>
            {content}
        </section>
    }
    .into_any()
}

#[component]
fn Row(webhook: WebhookView) -> impl IntoView {
    let WebhookView {
        webhook,
        deliveries,
    } = webhook;
    let (tone, icon, word) = match webhook.disabled {
        Some(_) => ("bad", "circle-x", "Disabled"),
        None => ("good", "circle-check", "Works"),
    };
    let events = match webhook.events.is_empty() {
        true => "all events".to_owned(),
        false => webhook.events.join(", "),
    };
    let tenant = webhook
        .tenant
        .map(|tenant| format!(" of the tenant {tenant}"));
    let origin = match webhook.configured {
        true => "in the configuration",
        false => "added through the API",
    };
    let deliveries = match deliveries {
        Err(why) => view! { <p class="problem">{why}</p> }.into_any(),
        Ok(list) if list.is_empty() => {
            view! { <p class="fine">"No message was sent yet."</p> }.into_any()
        }
        Ok(list) => {
            let row = |delivery| view! { <Delivery delivery /> };
            view! {
                <ol class="deliveries">{list.into_iter().map(row).collect_view()}</ol>
            }
            .into_any()
        }
    };
    view! {
        <li>
            <p class="webhook-head">
                <strong>{webhook.name}</strong>
                <span class="badge" data-tone=tone>
                    <Icon name=icon />
                    <span>{word}</span>
                </span>
                <span class="mono">{webhook.url}</span>
            </p>
            <p class="fine">
                {events} {tenant} " · " {origin} " · "
                {format!("{} not delivered yet", webhook.pending)}
            </p>
            <p class="problem">{webhook.disabled}</p>
            {deliveries}
        </li>
    }
    .into_any()
}

#[component]
fn Delivery(delivery: WebhookDelivery) -> impl IntoView {
    let status = delivery.response_status.map(|it| format!(" · answer {it}"));
    let attempts = match delivery.attempts {
        1 => "1 attempt".to_owned(),
        attempts => format!("{attempts} attempts"),
    };
    view! {
        <li>
            <When at=delivery.created_at />
            " "
            <span class="mono">{delivery.event_type}</span>
            {format!(" · {} · {attempts}", delivery.status)}
            {status}
        </li>
    }
    .into_any()
}
