//! Timelines and windows by moments, over HTTP.

use super::backend::RUNNING;
use super::get;

#[tokio::test]
async fn timelines_come_in_every_format() {
    // Check that a timeline has spans and rows of the same number as JSON, a letter for each as
    // text, and a line for each that is not empty as CSV; of a process by thread and of all by
    // process.
    for (path, who) in [
        ("/api/v1/timeline".to_owned(), "pid"),
        (format!("/api/v1/processes/{RUNNING}/timeline"), "tid"),
    ] {
        let json = get(&path).await.json();
        let spans = json["spans"].as_array().unwrap();
        assert!(!spans.is_empty(), "{json}");
        assert_eq!(spans[0]["from_at"], json["window"]["from"]);
        assert_eq!(
            json["rows"].as_array().unwrap().len(),
            0,
            "nothing ran lately: {json}"
        );
        let text = get(&format!("{path}?format=text")).await;
        assert!(text.text().contains("U user, S syscall"), "{}", text.text());
        let csv = get(&format!("{path}?format=csv")).await;
        assert!(csv.text().starts_with(who), "{}", csv.text());
        assert!(
            csv.text()
                .ends_with(",user_ns,syscall_ns,blocked_ns,runnable_ns,kernel_ns\r\n")
        );
    }
    for wrong in ["spans=0", "spans=601", "frames=all", "sort=pidd"] {
        get(&format!("/api/v1/timeline?{wrong}")).await.problem(400);
    }
}

#[tokio::test]
async fn windows_by_moments() {
    // Check that from and to choose the time an answer covers, that they do not go with window, and
    // that what is forgotten is told with what is kept.
    let answer = get("/api/v1/session?from=1700000017.5&to=-500ms")
        .await
        .json();
    assert_eq!(answer["window"]["from"], "2023-11-14T22:13:37.000000000Z");
    assert_eq!(answer["window"]["to"], "2023-11-14T22:13:39.000000000Z");
    let answer = get("/api/v1/session?from=2023-11-14T22:13:37Z&to=2023-11-14T22:13:38Z").await;
    assert_eq!(
        answer.json()["window"]["to"],
        "2023-11-14T22:13:38.000000000Z"
    );
    for (query, part) in [
        ("window=5s&from=-5s", "give one of window, from"),
        ("to=-5s", "from must be given where to is"),
        ("from=-1h", "is the earliest now"),
        ("from=-2s&to=-3s", "from must lie before to"),
        ("from=tomorrow", "from must be a time like"),
        ("from=-2s&session=a", "give one of window, from"),
        ("span=a", "session must be given where span is"),
    ] {
        let problem = get(&format!("/api/v1/session?{query}")).await.problem(400);
        assert!(
            problem["detail"].as_str().unwrap().contains(part),
            "{query}: {problem}"
        );
    }
}
