//! Search by name and by content, an addition to the contract.

use std::fs;

use serde_json::json;

use crate::support::daemon;

#[tokio::test]
async fn files_are_found_by_name_and_by_content() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let root = place.path().display().to_string();
    fs::create_dir(place.path().join("src")).unwrap();
    fs::write(
        place.path().join("src/a b.py"),
        "import os\n\nprint(os.Name)\n",
    )
    .unwrap();
    fs::write(place.path().join("note.txt"), "<b>Name</b>\r\n").unwrap();
    let find = async |query: &str| {
        daemon
            .get(&format!("/files/find?path={root}&{query}"))
            .await
    };

    let named = find("pattern=*.py").await.json();
    assert_eq!((&named["searched"], &named["cut"]), (&json!(0), &json!(0)));
    assert_eq!(
        named["entries"],
        json!([{
            "path": format!("{root}/src/a b.py"), "type": "file", "size": 26,
            "count": 0, "partial": false, "lines": [],
        }])
    );
    let holding = find("text=name&ignore_case=true").await.json();
    assert_eq!(holding["searched"], 2);
    assert_eq!(
        holding["entries"][0]["lines"],
        json!([{ "number": 1, "offset": 0, "before": "<b>", "hit": "Name", "after": "</b>" }])
    );
    let line = &holding["entries"][1]["lines"][0];
    assert_eq!((&line["number"], &line["offset"]), (&json!(3), &json!(11)));
    assert_eq!(find("text=name").await.json()["entries"], json!([]));
    let both = find("text=Name&pattern=*.txt").await.json();
    assert_eq!(both["entries"].as_array().unwrap().len(), 1);
    let limited = find("limit=1").await.json();
    assert_eq!(limited["stopped"], "matches");
}

#[tokio::test]
async fn searches_that_make_no_sense_are_refused() {
    let daemon = daemon();
    for (query, status, code) in [
        ("", 400, "MISSING_QUERY"),
        ("path=/none-such", 404, "FILE_NOT_FOUND"),
        ("path=/tmp&pattern=%5B", 400, "INVALID_REQUEST_BODY"),
        ("path=/tmp&text=a%0Ab", 400, "INVALID_REQUEST_BODY"),
    ] {
        let answer = daemon.get(&format!("/files/find?{query}")).await;
        let got = (answer.status.as_u16(), answer.code());
        assert_eq!(got, (status, code.to_owned()), "{query}");
    }
}
