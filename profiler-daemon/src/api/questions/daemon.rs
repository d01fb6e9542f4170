//! What is so right now, whatever the profile holds: how the daemon is, and what it profiles.

use crate::api::answer::{Answer, Shown};
use crate::api::described::{Described, REPORT};
use crate::api::endpoint::{Does, Get};
use crate::api::query::PLAIN;
use crate::api::status::Status;
use crate::config::targets::Targets;
use crate::export::text::name as shown_name;

/// `/api/v1/status`.
pub(crate) const STATUS: Get = Get {
    handler: "status",
    parameters: PLAIN,
    does: Does::Now(
        |source| {
            Box::pin(async move {
                source.renew_status().await;
                Box::new(Shown(source.status(), |status, out| {
                    out.write_all(status.to_text().as_bytes())
                })) as Box<dyn Answer>
            })
        },
        Described::report::<Status>(REPORT),
    ),
};

/// `/api/v1/targets`.
pub(crate) const TARGETS: Get = Get {
    handler: "targets",
    parameters: PLAIN,
    does: Does::Now(
        |source| {
            let answer = Box::new(Shown(source.targets(), |targets, out| {
                out.write_all(targets_text(targets).as_bytes())
            }));
            Box::pin(std::future::ready(answer as Box<dyn Answer>))
        },
        Described::report::<Targets>(REPORT),
    ),
};

/// A line per field, and per name where there are several.
fn targets_text(targets: &Targets) -> String {
    let mut text = format!(
        "all       {}\nchildren  {}\n",
        targets.all, targets.children
    );
    let pids = targets.pids.iter().map(|pid| format!("pid       {pid}\n"));
    text.extend(pids);
    for (title, names) in [("comm", &targets.comms), ("cgroup", &targets.cgroups)] {
        text.extend(
            names
                .iter()
                .map(|name| format!("{title:8}  {}\n", shown_name(name))),
        );
    }
    text
}
