//! Files: queries, bodies, uploads and ranges.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Multipart, RawQuery},
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::{get, post},
};
use futures::{StreamExt, stream};
use osb_client::{
    Error,
    execd::{Find, Portion, Upload},
    protocol::execd::file::{Move, Permission, Replacement},
};
use reqwest::Body;
use serde_json::{Value, json};

use crate::support::execd;

#[tokio::test]
async fn names_of_any_kind_travel_in_the_query() {
    let info = async |RawQuery(query): RawQuery| {
        assert_eq!(
            query.as_deref(),
            Some("path=%2Ftmp%2Fa+b%26c&path=%2F%C3%BC")
        );
        let info = json!({
            "path": "/ü", "type": "file", "size": 3, "owner": "root", "group": "0", "mode": 644,
            "modified_at": "2026-01-01T00:00:00Z", "created_at": "2026-01-01T00:00:00+02:00",
        });
        Json(json!({"/ü": info}))
    };
    let execd = execd(Router::new().route("/files/info", get(info))).await;
    let infos = execd.info(&["/tmp/a b&c", "/ü"]).await.unwrap();
    assert_eq!((infos["/ü"].size, infos["/ü"].mode), (3, 644));
}

#[tokio::test]
async fn a_search_asks_for_a_name_and_a_text() {
    let answer = async |RawQuery(query): RawQuery| {
        assert_eq!(
            query.as_deref(),
            Some("path=%2Fa&pattern=*.rs&text=x%26y&ignore_case=true&limit=5")
        );
        Json(json!({"entries": [{"path": "/a/b.rs", "type": "file", "size": 3}], "searched": 1}))
    };
    let execd = execd(Router::new().route("/files/find", get(answer))).await;
    let wanted = Find {
        pattern: "*.rs".to_owned(),
        text: "x&y".to_owned(),
        ignore_case: true,
        limit: 5,
    };
    let found = execd.find("/a", &wanted).await.unwrap();
    assert_eq!((found.entries.len(), found.stopped), (1, None));
}

#[tokio::test]
async fn changes_are_sent_as_the_contract_says() {
    let expect = |query: Option<&'static str>, body: Value, answer: Value| {
        async move |RawQuery(got): RawQuery, bytes: Bytes| {
            assert_eq!(got.as_deref(), query);
            let got: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            assert_eq!(got, body);
            if answer.is_null() {
                ().into_response()
            } else {
                Json(answer).into_response()
            }
        }
    };
    let permission = json!({"mode": 755, "owner": "u"});
    let router = Router::new()
        .route(
            "/files/mv",
            post(expect(
                None,
                json!([{"src": "a", "dest": "b"}]),
                Value::Null,
            )),
        )
        .route(
            "/files/permissions",
            post(expect(None, json!({"/a": permission}), Value::Null)),
        )
        .route(
            "/files/replace",
            post(expect(
                Some("verbose=true"),
                json!({"/a": {"old": "x", "new": "y"}}),
                json!({"/a": {"replacedCount": 2}}),
            )),
        )
        .route(
            "/files/search",
            get(expect(
                Some("path=%2Fa&pattern=*.rs"),
                Value::Null,
                json!([]),
            )),
        )
        .route(
            "/files",
            axum::routing::delete(expect(
                Some("path=%2Fa&path=%2Fb"),
                Value::Null,
                Value::Null,
            )),
        )
        .route(
            "/directories",
            post(expect(None, json!({"/a": permission}), Value::Null)).delete(expect(
                Some("path=%2Fa"),
                Value::Null,
                Value::Null,
            )),
        )
        .route(
            "/directories/list",
            get(expect(Some("path=%2Fa&depth=2"), Value::Null, json!([]))),
        );
    let execd = execd(router).await;
    let permission = Permission {
        mode: 755,
        owner: Some("u".to_owned()),
        group: None,
    };
    let permissions = [("/a".to_owned(), permission)].into();
    let moves = [Move {
        src: "a".to_owned(),
        dest: "b".to_owned(),
    }];
    let replacement = Replacement {
        old: "x".to_owned(),
        new: "y".to_owned(),
    };
    execd.move_files(&moves).await.unwrap();
    execd.set_permissions(&permissions).await.unwrap();
    let replaced = execd
        .replace(&[("/a".to_owned(), replacement)].into())
        .await
        .unwrap();
    assert_eq!(replaced["/a"].count, 2);
    assert!(execd.search("/a", "*.rs").await.unwrap().is_empty());
    execd.delete_files(&["/a", "/b"]).await.unwrap();
    execd.make_directories(&permissions).await.unwrap();
    execd.delete_directories(&["/a"]).await.unwrap();
    assert!(execd.list("/a", 2).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_long_list_is_read_and_one_that_is_too_long_is_not() {
    let entry = json!({
        "path": format!("/{}", "x".repeat(1000)), "type": "file", "size": 1, "mode": 644,
        "owner": "u", "group": "g", "modified_at": "2031-05-01T10:00:00Z",
        "created_at": "2031-05-01T10:00:00Z",
    });
    let list = async move |RawQuery(query): RawQuery| {
        let depth = query.unwrap().rsplit_once('=').unwrap().1.parse().unwrap();
        format!("[{}]", vec![entry.to_string(); depth].join(","))
    };
    let execd = execd(Router::new().route("/directories/list", get(list))).await;
    assert_eq!(execd.list("/a", 3000).await.unwrap().len(), 3000);
    let endless = execd.list("/a", 40_000).await.unwrap_err();
    assert!(matches!(endless, Error::TooLong(_)), "{endless}");
}

#[tokio::test]
async fn uploads_are_pairs_of_metadata_and_content() {
    let upload = async |mut form: Multipart| {
        let mut seen = Vec::new();
        while let Some(part) = form.next_field().await.unwrap() {
            let name = part.name().unwrap().to_owned();
            let file = part.file_name().unwrap().to_owned();
            seen.push((name, file, part.text().await.unwrap()));
        }
        let seen: Vec<_> = seen.iter().map(|(a, b, c)| [a.as_str(), b, c]).collect();
        let first = r#"{"path":"/tmp/a \"b\"","owner":"u","mode":600}"#;
        assert_eq!(
            seen,
            [
                ["metadata", "metadata", first],
                ["file", "a \"b\"", "bytes"],
                ["metadata", "metadata", r#"{"path":"/c","mode":0}"#],
                ["file", "c", "streamed"],
            ]
        );
    };
    let execd = execd(Router::new().route("/files/upload", post(upload))).await;
    let pieces = stream::iter(["strea", "med"].map(Ok::<_, std::io::Error>));
    let files = [
        Upload {
            path: "/tmp/a \"b\"".to_owned(),
            permission: Permission {
                owner: Some("u".to_owned()),
                group: None,
                mode: 600,
            },
            content: Body::from("bytes"),
        },
        Upload {
            path: "/c".to_owned(),
            permission: Permission::default(),
            content: Body::wrap_stream(pieces),
        },
    ];
    execd.upload(files).await.unwrap();
}

#[tokio::test]
async fn parts_of_files_are_asked_for_by_range_or_by_line() {
    let download = async |headers: HeaderMap, RawQuery(query): RawQuery| {
        let range = headers
            .get("range")
            .map_or("", |range| range.to_str().unwrap());
        format!("{} {range}", query.unwrap())
    };
    let execd = execd(Router::new().route("/files/download", get(download))).await;
    for (portion, expected) in [
        (Portion::Whole, "path=%2Fa "),
        (Portion::Bytes(0..=9), "path=%2Fa bytes=0-9"),
        (Portion::From(5), "path=%2Fa bytes=5-"),
        (Portion::Last(5), "path=%2Fa bytes=-5"),
        (
            Portion::Lines {
                first: 2,
                count: Some(3),
            },
            "path=%2Fa&offset=2&limit=3 ",
        ),
        (
            Portion::Lines {
                first: 2,
                count: None,
            },
            "path=%2Fa&offset=2 ",
        ),
    ] {
        assert_eq!(execd.read("/a", portion.clone()).await.unwrap(), expected);
        let download = execd.download("/a", portion).await.unwrap();
        assert_eq!(download.length(), Some(expected.len() as u64));
        let chunks: Vec<_> = download.map(Result::unwrap).collect().await;
        assert_eq!(chunks.concat(), expected.as_bytes());
    }
}

#[tokio::test]
async fn a_missing_file_is_an_api_error() {
    let download = async || {
        let body = json!({"code": "FILE_NOT_FOUND", "message": "file not found. /a"});
        (StatusCode::NOT_FOUND, Json(body))
    };
    let execd = execd(Router::new().route("/files/download", get(download))).await;
    let error = execd.read("/a", Portion::Whole).await.unwrap_err();
    assert_eq!(error.code(), Some("FILE_NOT_FOUND"));
}
