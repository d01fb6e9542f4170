//! Query strings, read strictly: what is unknown, repeated or not allowed is refused with what is
//! allowed, so that a typo never looks like an empty result.

use super::parameter::{Declared, Parameter, Without};
use super::problem::{Fault, Problem, shown};
use super::value::ParameterKind;

/// Parameters of one query that are looked at: several times what any endpoint takes. Each fault is
/// told with what is allowed, so that a short query could have a long answer.
const MAX_PARAMETERS: usize = 64;

/// The parameters of one request, taken one by one; the faults are told together.
pub(crate) struct Params {
    values: Vec<(String, String)>,
    faults: Vec<Fault>,
}

impl Params {
    /// Splits a query string, which `guard` bounds with the path. Only `allowed` names may be in
    /// it.
    pub(crate) fn parse(query: Option<&str>, allowed: &[&dyn Declared]) -> Self {
        let mut params = Self {
            values: Vec::new(),
            faults: Vec::new(),
        };
        let query = query.unwrap_or_default();
        let mut parts = query.split('&').filter(|part| !part.is_empty());
        for part in parts.by_ref().take(MAX_PARAMETERS) {
            params.add(part, allowed);
        }
        if parts.next().is_some() {
            let detail = format!("there are more than {MAX_PARAMETERS} parameters");
            params.faults.push(Fault::plain(detail));
        }
        params
    }

    fn add(&mut self, part: &str, allowed: &[&dyn Declared]) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
            self.faults.push(Fault {
                parameter: None,
                given: Some(shown(part)),
                detail: "the query holds an escape that is not UTF-8 text".to_owned(),
            });
            return;
        };
        if !allowed.iter().any(|known| known.name() == name) {
            let known = if allowed.is_empty() {
                "no parameters".to_owned()
            } else {
                let names: Vec<&str> = allowed.iter().map(|known| known.name()).collect();
                names.join(", ")
            };
            let detail = format!("{} is not known here: allowed are {known}", shown(&name));
            self.faults.push(Fault {
                parameter: Some(shown(&name)),
                given: Some(shown(&value)),
                detail,
            });
        } else if self.values.iter().any(|(known, _)| *known == name) {
            let detail = format!("{name} is given more than once");
            self.faults.push(Fault {
                parameter: Some(name),
                given: Some(shown(&value)),
                detail,
            });
        } else {
            self.values.push((name, value));
        }
    }

    /// Takes a parameter; `read` answers what is allowed where the value is not.
    pub(crate) fn take<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let position = self.values.iter().position(|(known, _)| known == name)?;
        let (name, value) = self.values.swap_remove(position);
        match read(&value) {
            Ok(value) => Some(value),
            Err(allowed) => {
                let detail = format!("{name} {allowed}");
                self.faults.push(Fault {
                    parameter: Some(name),
                    given: Some(shown(&value)),
                    detail,
                });
                None
            }
        }
    }

    /// Ends the reading. What is allowed here and was not taken has no meaning for this very
    /// request: that is a fault too, where no other fault may be why.
    ///
    /// # Errors
    ///
    /// All faults, if there are any.
    pub(crate) fn finish(mut self) -> Result<(), Problem> {
        if self.faults.is_empty() {
            let left = self.values.into_iter().map(|(name, value)| Fault {
                detail: format!("{name} means nothing in this request"),
                parameter: Some(name),
                given: Some(shown(&value)),
            });
            self.faults.extend(left);
        }
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(Problem::parameters(self.faults))
        }
    }

    /// Whether a parameter was given and not taken yet.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.values.iter().any(|(known, _)| known == name)
    }

    /// Notes a fault of parameters that do not go together.
    pub(crate) fn fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Takes a parameter, if it is given.
    pub(crate) fn given<K: ParameterKind>(&mut self, parameter: &Parameter<K>) -> Option<K::Value> {
        self.take(parameter.name, |text| parameter.kind.read(text))
    }

    /// Takes a parameter; without it, what it then means.
    pub(crate) fn or_default<K: ParameterKind>(&mut self, parameter: &Parameter<K>) -> K::Value {
        self.given(parameter).unwrap_or_else(|| {
            let Without::Default(text) = parameter.without else {
                unreachable!("{} is declared without a default", parameter.name)
            };
            parameter
                .kind
                .read(text)
                .expect("a default is one of the allowed values")
        })
    }

    /// Takes a parameter that must be given; any value where it is not, which is a fault.
    pub(crate) fn required<K: ParameterKind<Value: Default>>(
        &mut self,
        parameter: &Parameter<K>,
    ) -> K::Value {
        if !self.is_given(parameter.name) {
            self.faults.push(Fault {
                parameter: Some(parameter.name.to_owned()),
                given: None,
                detail: format!("{} must be given: {}", parameter.name, parameter.about),
            });
        }
        self.given(parameter).unwrap_or_default()
    }
}

/// Undoes the escapes of a query string; none where they are broken or do not make text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::super::problem::shown;
    use super::super::query::{TABLE, TREE, VIEW};
    use super::{Params, decoded};
    use crate::report::query::{FrameScope, Moment, Order, Window};
    use crate::units::UnixNs;

    #[test]
    fn every_parameter_arrives() {
        // Check that each parameter of a table and a tree is read, and that nothing given means the
        // defaults.
        let mut params = Params::parse(
            Some("sort=elapsed.exclusive_ns&order=asc&limit=0&q=a%20b%2Bc&frames=all&window=30s"),
            TABLE,
        );
        let table = params.table();
        assert!(params.finish().is_ok());
        assert_eq!(table.sort.as_deref(), Some("elapsed.exclusive_ns"));
        assert!(matches!(table.order, Order::Asc) && matches!(table.frames, FrameScope::All));
        assert_eq!((table.limit, table.q.as_deref()), (0, Some("a b+c")));
        assert!(matches!(
            table.window,
            Window::Last {
                duration_ns: 30_000_000_000
            }
        ));
        let mut params = Params::parse(Some("depth=3&min_percent=0.5"), TREE);
        let tree = params.tree();
        assert_eq!((tree.depth, tree.min_percent), (Some(3), 0.5));
        let table = Params::parse(None, TABLE).table();
        assert!(matches!(table.order, Order::Desc) && matches!(table.window, Window::Session));
        assert_eq!((table.limit, table.sort), (100, None));
    }

    #[test]
    fn what_is_not_allowed_is_told_together() {
        // Check that unknown, repeated and wrong parameters each have a fault that says what is
        // allowed.
        let mut params = Params::parse(
            Some("sorted=x&order=up&limit=-1&limit=2&window=0s&frames=&q="),
            TABLE,
        );
        let _table = params.table();
        let told = format!("{:?}", params.finish().unwrap_err());
        for part in [
            "sorted is not known here: allowed are format, interval, frames, window, from, to, session, span, sort, order, limit, q",
            "order must be desc or asc",
            "limit is given more than once",
            "limit must be a whole number from 0 to 1000000",
            "window must be session, recent or a length of time",
            "frames must be user or all",
            "q must be text of 1 to 256 characters",
        ] {
            assert!(told.contains(part), "{part} is missing from {told}");
        }
    }

    #[test]
    fn what_nobody_reads_is_refused() {
        // Check that a parameter of the endpoint that this very request has no use for is refused
        // by name, unless another fault may be why it has none.
        let mut params = Params::parse(Some("frames=all&depth=3"), TREE);
        let _view = params.view();
        let told = format!("{:?}", params.finish().unwrap_err());
        assert!(
            told.contains("depth means nothing in this request") && !told.contains("frames means"),
            "{told}"
        );
        let mut params = Params::parse(Some("frames=x&depth=3"), TREE);
        let _view = params.view();
        let told = format!("{:?}", params.finish().unwrap_err());
        assert!(
            told.contains("frames must be") && !told.contains("means nothing"),
            "{told}"
        );
    }

    #[test]
    fn moments_are_read() {
        // Check that each way to write a moment is read, that what is none is refused, and that
        // moments do not go with a length.
        let between = |query: &str| {
            let mut params = Params::parse(Some(query), TABLE);
            let table = params.table();
            params.finish().map(|()| table.window)
        };
        let at = |unix_ns| Moment::At { unix_ns };
        for (text, moment) in [
            ("-90s", Moment::Ago { ns: 90_000_000_000 }),
            ("-0", Moment::Ago { ns: 0 }),
            ("1700000000", at(UnixNs::new(1_700_000_000_000_000_000))),
            ("1700000000.05", at(UnixNs::new(1_700_000_000_050_000_000))),
            (
                "2023-11-14T22:13:20Z",
                at(UnixNs::new(1_700_000_000_000_000_000)),
            ),
            (
                "2023-11-14T22:13:20.000000001Z",
                at(UnixNs::new(1_700_000_000_000_000_001)),
            ),
        ] {
            let expected = Window::Between {
                from: moment,
                to: None,
            };
            assert_eq!(
                between(&format!("from={text}")).unwrap(),
                expected,
                "{text}"
            );
            let expected = Window::Between {
                from: at(UnixNs::new(1_000_000_000)),
                to: Some(moment),
            };
            assert_eq!(
                between(&format!("from=1&to={text}")).unwrap(),
                expected,
                "{text}"
            );
        }
        for query in [
            "from=",
            "from=-",
            "from=90s",
            "from=-90",
            "from=1.",
            "from=.5",
            "from=1.0000000001",
            "from=1e9",
            "from=99999999999",
            "from=2023-11-14",
            "from=2023-11-14T22:13:20",
            "from=1969-12-31T00:00:00Z",
            "to=5",
            "window=5m&from=-90s",
            "from=1&window=session",
        ] {
            assert!(between(query).is_err(), "{query} was accepted");
        }
    }

    #[test]
    fn numbers_are_read_strictly() {
        // Check that signs, fractions, infinities and numbers out of bounds are refused.
        for query in [
            "depth=0",
            "depth=%2B1",
            "depth=1.5",
            "depth=10001",
            "min_percent=NaN",
            "min_percent=101",
        ] {
            let mut params = Params::parse(Some(query), TREE);
            let _tree = params.tree();
            assert!(params.finish().is_err(), "{query} was accepted");
        }
    }

    #[test]
    fn hostile_queries_are_refused() {
        // Check that broken escapes and bytes that are no text are refused, and echoes are cut.
        for query in ["frames=%", "frames=%zz", "frames=%ff", "%ff=1"] {
            assert!(
                Params::parse(Some(query), VIEW).finish().is_err(),
                "{query} was accepted"
            );
        }
        let many = "a&".repeat(4000);
        let told = format!(
            "{:?}",
            Params::parse(Some(&many), VIEW).finish().unwrap_err()
        );
        assert!(told.contains("more than 64") && told.len() < 64 << 10);
        assert_eq!(decoded("%41+b"), Some("A b".to_owned()));
        assert!(shown(&"é\n".repeat(100)).len() < 100);
        assert!(!shown("a\nb").contains('\n'));
    }
}
