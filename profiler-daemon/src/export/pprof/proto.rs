//! The messages of the pprof format (`profile.proto` of github.com/google/pprof), as far as they
//! are written here. Numbers of strings, functions, locations and mappings are what the format's
//! comments say: indexes into `string_table`, and ids.

/// A profile.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PprofProfile {
    /// What the values of each sample are.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The stacks.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The first is shown as the profile's own file.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<PprofMapping>,
    /// Places in functions.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All text; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// When it began, nanoseconds since 1970.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// How long it is.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// What is between two samples.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// How much of it.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Remarks for people.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The value that is shown first.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct ValueType {
    /// Its name.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Its unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// A stack and what it received.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// As many as there are sample types.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Whose it is.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<PprofLabel>,
}

/// A remark on a stack: text or a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct PprofLabel {
    /// Its name.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Text.
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// Number.
    #[prost(int64, tag = "3")]
    pub num: i64,
    /// Unit of the number.
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

/// A module.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct PprofMapping {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The lowest address in it.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// The first address after it.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// Where in the file it begins.
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    /// Path, or a name in brackets.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Hexadecimal.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// Every location in it has its function.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Every function has its file.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Every location has its line.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Inlined functions are told.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A place in a function.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Location {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// 0: none.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// Between the bounds of its mapping.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// The function; of inlined ones the innermost first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<PprofLine>,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct PprofLine {
    /// The function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// 0: not known.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Function {
    /// Not 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// For people.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// For the linker.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
    /// First line.
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}
