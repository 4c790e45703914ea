//! A way in words: what each holder is, and by what name it holds.

use serde::Serialize;

use crate::attribute::{self, Attributes};
use crate::dict;
use crate::frame::{self, FrameName};
use crate::graph::Index;
use crate::heap::Heap;
use crate::layout::{
    CELL_VALUE, DESCRIPTOR_CLASS, DESCRIPTOR_NAME, METHOD_SELF, SET_USED, SIZE, TRACEBACK_FRAME,
    TRACEBACK_LINE,
};
use crate::place::base_name;
use crate::search::{Root, Way};
use crate::types::Kind;

/// A holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Hop {
    /// An object, and the attribute by which it holds the one before.
    Object {
        /// Its class.
        class: String,
        /// The attribute; `None` if it has no name.
        attribute: Option<String>,
    },
    /// A list, tuple, set, dict or the like.
    Container {
        /// Its class.
        class: String,
        /// How many entries it has; `None` if they differ.
        entries: Option<u64>,
        /// The key, if it is always the same.
        key: Option<String>,
    },
    /// A variable of a function that waits or has failed.
    Local {
        /// The variable.
        name: Option<String>,
        /// The function.
        function: String,
        /// Its file.
        file: String,
        /// The line that it is at.
        line: Option<u32>,
    },
    /// A function that keeps a variable of another one.
    Closure {
        /// The function.
        function: String,
    },
    /// A function that has it as the value of a parameter.
    Default {
        /// The function.
        function: String,
    },
    /// A method with its object.
    Method {
        /// The method.
        function: String,
    },
    /// A traceback.
    Traceback {
        /// Where the exception passed.
        line: Option<u32>,
    },
}

impl Hop {
    /// Without what differs from one descriptor to the next.
    pub(crate) fn shape(&self) -> Self {
        match self.clone() {
            Self::Container { class, .. } => Self::Container {
                class,
                entries: None,
                key: None,
            },
            Self::Local {
                name,
                function,
                file,
                ..
            } => Self::Local {
                name,
                function,
                file,
                line: None,
            },
            Self::Traceback { .. } => Self::Traceback { line: None },
            other => other,
        }
    }

    /// What two holders of one shape have in common.
    pub(crate) fn common(self, other: &Self) -> Self {
        let keep = |one: Option<u64>, other: Option<u64>| one.filter(|_| one == other);
        match (self, other) {
            (
                Self::Container {
                    class,
                    entries,
                    key,
                },
                Self::Container {
                    entries: more,
                    key: also,
                    ..
                },
            ) => Self::Container {
                class,
                entries: keep(entries, *more),
                key: key.filter(|key| also.as_ref() == Some(key)),
            },
            (one, _) => one,
        }
    }

    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Object { class, attribute } => match attribute {
                Some(attribute) => format!("{class}.{attribute}"),
                None => class.clone(),
            },
            Self::Container {
                class,
                entries,
                key,
            } => match (key, entries) {
                (Some(key), _) => format!("{class}[{key}]"),
                (None, Some(1)) => format!("{class} (1 entry)"),
                (None, Some(entries)) => format!("{class} ({entries} entries)"),
                (None, None) => class.clone(),
            },
            Self::Local {
                name,
                function,
                file,
                line,
            } => {
                let place = place(file, *line);
                match name {
                    Some(name) => format!("local `{name}` of {function}() {place}"),
                    None => format!("{function}() {place}"),
                }
            }
            Self::Closure { function } => format!("closure of {function}()"),
            Self::Default { function } => format!("default argument of {function}()"),
            Self::Method { function } => format!("method {function}()"),
            Self::Traceback { line: Some(line) } => format!("traceback (line {line})"),
            Self::Traceback { line: None } => "traceback".to_owned(),
        }
    }
}

fn place(file: &str, line: Option<u32>) -> String {
    match line {
        Some(line) => format!("{}:{line}", base_name(file)),
        None => base_name(file).to_owned(),
    }
}

impl Root {
    /// Threads of one function are one reason.
    pub(crate) fn without_thread(self) -> Self {
        match self {
            Self::Local {
                name,
                frame,
                thread,
            } => Self::Local {
                name,
                frame: frame.map(|frame| FrameName {
                    line: None,
                    ..frame
                }),
                thread: u64::from(thread == u64::MAX) * u64::MAX,
            },
            other => other,
        }
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        let member = |of: &str, name: &Option<String>| match name {
            Some(name) => format!("{of}.{name}"),
            None => of.to_owned(),
        };
        match self {
            Self::Global { module, name } => member(module, name),
            Self::Class { class, name } => member(class, name),
            // Up to 3.9 the module keeps them, and later the interpreter.
            Self::State { module } if module == "atexit" => "an atexit callback".to_owned(),
            Self::State { module } => format!("module {module}"),
            Self::Local {
                name,
                frame,
                thread,
            } => {
                let whose = match name {
                    Some(name) => format!("local `{name}`"),
                    None => "a value".to_owned(),
                };
                let frame = match frame {
                    Some(FrameName {
                        function,
                        file,
                        line,
                    }) => format!("{function}() {}", place(file, *line)),
                    None => "a function".to_owned(),
                };
                match thread {
                    0 => format!("{whose} of {frame}"),
                    &u64::MAX => format!("{whose} of {frame} in a greenlet"),
                    thread => format!("{whose} of {frame} in thread {thread}"),
                }
            }
            Self::Label(label) => (*label).to_owned(),
            Self::Unknown => "C code, or something that does not tell gc".to_owned(),
        }
    }
}

impl Heap<'_> {
    /// The class of the object at the beginning of a way, and its holders.
    pub(crate) fn hops(&self, way: &Way) -> Vec<Hop> {
        let mut hops: Vec<Hop> = Vec::new();
        let path = &way.path;
        let is_root_dict = matches!(way.root, Root::Global { .. });
        let is_class = matches!(way.root, Root::Class { .. } | Root::State { .. });
        let last = path.len() - usize::from(is_root_dict || is_class);
        let mut at = 1;
        while at < last {
            let (hop, steps) = self.hop(path, at, last);
            let is_repeated = matches!(hop, Some(Hop::Traceback { .. }))
                && matches!(hops.last(), Some(Hop::Traceback { .. }));
            hops.extend(hop.filter(|_| !is_repeated));
            at += steps;
        }
        // The dict of a class is the class.
        let is_in_class = matches!(hops.last(), Some(Hop::Container { .. })) && is_class;
        let dict = path.len().checked_sub(2).and_then(|at| path.get(at));
        if is_in_class
            && dict.zip(path.last()).is_some_and(|(dict, class)| {
                let of = self.graph.address(*class);
                let own = self.reader.field(of, crate::layout::TYPE_DICT);
                own == Some(self.graph.address(*dict))
            })
        {
            hops.pop();
        }
        hops
    }

    /// The holder at this place of a way, and how many objects it takes.
    fn hop(&self, path: &[Index], at: usize, last: usize) -> (Option<Hop>, usize) {
        let address = |at: usize| path.get(at).map_or(0, |object| self.graph.address(*object));
        let (holder, child) = (address(at), address(at - 1));
        let Some(object) = path.get(at).copied() else {
            return (None, 1);
        };
        let of = self.type_of(object);
        let class = of.as_ref().map_or("?", |of| &of.name).to_owned();
        let kind = of.as_ref().map_or(Kind::Other, |of| of.kind);
        let entries = |offset| self.reader.field(holder, offset);
        let container = |entries| {
            let class = class.clone();
            Some(Hop::Container {
                class,
                entries,
                key: None,
            })
        };
        let one = match kind {
            Kind::Dict => return self.dict_hop(path, at, last, &class),
            Kind::List | Kind::Deque => container(entries(SIZE)),
            Kind::Set => container(entries(SET_USED)),
            Kind::Tuple => {
                let next = path.get(at + 1).filter(|_| at + 1 < last);
                if next.is_some_and(|next| self.is_of_function(*next, holder)) {
                    return (None, 1);
                }
                container(entries(SIZE))
            }
            Kind::Cell if self.reader.field(holder, CELL_VALUE) == Some(child) => None,
            Kind::Function => Some(self.function_hop(holder, child, class)),
            Kind::Method if self.reader.field(holder, METHOD_SELF) == Some(child) => {
                let function = self.reader.field(holder, 16);
                let function = function.and_then(|function| self.method_name(function));
                Some(match function {
                    Some(function) => Hop::Method { function },
                    None => Hop::Object {
                        class,
                        attribute: Some("__self__".to_owned()),
                    },
                })
            }
            Kind::Method => None,
            Kind::Generator | Kind::Frame => self.frame_hop(kind, holder, child),
            Kind::Traceback => {
                let line = self.reader.int(holder, TRACEBACK_LINE);
                let is_frame = self.reader.field(holder, TRACEBACK_FRAME) == Some(child);
                Some(Hop::Traceback {
                    line: line
                        .filter(|_| is_frame)
                        .and_then(|line| u32::try_from(line).ok()),
                })
            }
            _ => {
                let attribute =
                    of.and_then(|of| attribute::name_of(&self.reader, holder, &of, child));
                Some(Hop::Object { class, attribute })
            }
        };
        (one, 1)
    }

    /// Whether a tuple is what a function closes over, or the values of its parameters.
    fn is_of_function(&self, function: Index, tuple: u64) -> bool {
        let address = self.graph.address(function);
        let part = |offset| self.reader.field(address, offset) == Some(tuple);
        self.kind_of(function) == Kind::Function
            && (part(self.reader.at.function_closure) || part(self.reader.at.function_defaults()))
    }

    /// A function, by what of it has the object.
    fn function_hop(&self, holder: u64, child: u64, class: String) -> Hop {
        let at = self.reader.at;
        let is = |offset| self.reader.field(holder, offset) == Some(child);
        let function = self.function_name(holder);
        let function = function.unwrap_or_else(|| class.clone());
        if is(at.function_closure) {
            Hop::Closure { function }
        } else if is(at.function_defaults()) || is(at.function_keyword_defaults()) {
            Hop::Default { function }
        } else {
            let attribute = is(at.function_globals()).then(|| "__globals__".to_owned());
            Hop::Object { class, attribute }
        }
    }

    fn dict_hop(
        &self,
        path: &[Index],
        at: usize,
        last: usize,
        class: &str,
    ) -> (Option<Hop>, usize) {
        let address = |at: usize| path.get(at).map_or(0, |object| self.graph.address(*object));
        let (holder, child) = (address(at), address(at - 1));
        let key = dict::key_of(&self.reader, holder, child);
        let name = key.and_then(|key| self.key_text(key));
        if let Some(next) = path.get(at + 1).filter(|_| at + 1 < last)
            && let Some(of) = self.type_of(*next)
            && attribute::attributes(&self.reader, address(at + 1), &of)
                == Some(Attributes::Dict(holder))
        {
            let attribute = key.and_then(|key| self.reader.text(key));
            let class = of.name.clone();
            return (Some(Hop::Object { class, attribute }), 2);
        }
        let hop = Hop::Container {
            class: class.to_owned(),
            entries: dict::length(&self.reader, holder),
            key: name,
        };
        (Some(hop), 1)
    }

    /// A key as it would be written.
    pub(crate) fn key_text(&self, key: u64) -> Option<String> {
        const MOST: usize = 40;
        let kind = self.reader.kind(key)?;
        let of = self.class(kind)?;
        match of.name.as_str() {
            "str" => {
                let text = self.reader.text(key)?;
                let is_short = text.chars().count() <= MOST && !text.contains(['\'', '\n']);
                is_short.then(|| format!("'{text}'"))
            }
            "int" => self.small_number(key).map(|number| number.to_string()),
            _ => None,
        }
    }

    fn function_name(&self, function: u64) -> Option<String> {
        let name = self
            .reader
            .pointer(function, self.reader.at.function_name)?;
        self.reader.text(name)
    }

    /// The name of a method, in Python or in C.
    fn method_name(&self, function: u64) -> Option<String> {
        let of = self.class(self.reader.kind(function)?)?;
        if of.kind == Kind::Function {
            return self.function_name(function);
        }
        if !of.name.ends_with("_descriptor") {
            return None;
        }
        let class = self.class(self.reader.pointer(function, DESCRIPTOR_CLASS)?)?;
        let name = self.reader.pointer(function, DESCRIPTOR_NAME)?;
        Some(format!("{}.{}", class.name, self.reader.text(name)?))
    }

    pub(crate) fn frame_hop(&self, kind: Kind, holder: u64, child: u64) -> Option<Hop> {
        let frame = match kind {
            Kind::Generator => frame::of_generator(&self.reader, holder),
            _ => frame::of_object(&self.reader, holder),
        }?;
        if kind == Kind::Generator && self.reader.at.frames.has_frame_objects() {
            // Its frame is an object of its own, and was named.
            return None;
        }
        let FrameName {
            function,
            file,
            line,
        } = frame::name(&self.reader, frame)?;
        Some(Hop::Local {
            name: frame::variable_of(&self.reader, frame, child),
            function,
            file,
            line,
        })
    }
}
