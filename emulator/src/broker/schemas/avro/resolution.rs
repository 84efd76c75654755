//! Whether what was written with one schema can be read with another: Avro's schema resolution.

use std::collections::BTreeMap;

use super::{AvroSchema, AvroType, DEPTH_MAX, Enumeration, PAIRS_MAX, Record, TypeId, within};

impl AvroSchema {
    /// Says why what this schema wrote can't be read with another, if so.
    pub(in crate::broker::schemas) fn is_read_by(&self, reader: &Self) -> Result<(), String> {
        let mut resolution = Resolution { writer: self, reader, known: BTreeMap::new(), left: PAIRS_MAX };
        resolution.types(self.root, reader.root, 0)
    }
}

struct Resolution<'a> {
    writer: &'a AvroSchema,
    reader: &'a AvroSchema,
    /// The pairs of records that were met, and whether the one is read by the other. One that is
    /// being compared counts as read.
    known: BTreeMap<(TypeId, TypeId), bool>,
    /// How many more pairs may be compared.
    left: usize,
}

impl Resolution<'_> {
    fn types(&mut self, writer: TypeId, reader: TypeId, depth: usize) -> Result<(), String> {
        use AvroType::{
            Array, Boolean, Bytes, Double, Enum, Fixed, Float, Int, Long, Map, Null, Record, String, Union,
        };
        if depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} types are nested"));
        }
        self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
        let (all_written, all_read) = (self.writer, self.reader);
        let (written, read) = (&all_written.types[writer], &all_read.types[reader]);
        match (written, read) {
            (Union(branches), _) => {
                branches.ids.iter().try_for_each(|branch| self.types(*branch, reader, depth + 1))
            }
            (_, Union(branches)) => {
                let of_same_name = branches.by_name.get(written.branch()).into_iter();
                let mut readers = of_same_name.chain(&branches.ids);
                if readers.any(|branch| self.types(writer, *branch, depth + 1).is_ok()) {
                    return Ok(());
                }
                let unread = || format!("a union has no type for {}", written.branch());
                Err(if self.left == 0 { too_many() } else { unread() })
            }
            (Null, Null)
            | (Boolean, Boolean)
            | (Int, Int | Long | Float | Double)
            | (Long, Long | Float | Double)
            | (Float, Float | Double)
            | (Double, Double)
            | (Bytes | String, Bytes | String) => Ok(()),
            (Array(written), Array(read)) | (Map(written), Map(read)) => {
                self.types(*written, *read, depth + 1)
            }
            (Fixed(written), Fixed(read)) if read.name.reads(&written.name) && written.size == read.size => {
                Ok(())
            }
            (Enum(written), Enum(read)) if read.name.reads(&written.name) => symbols(written, read),
            (Record(written), Record(read)) if read.name.reads(&written.name) => {
                self.records((writer, reader), (written, read), depth)
            }
            _ => Err(format!("{} can't be read as {}", written.branch(), read.branch())),
        }
    }

    fn records(
        &mut self,
        ids: (TypeId, TypeId),
        (written, read): (&Record, &Record),
        depth: usize,
    ) -> Result<(), String> {
        match self.known.get(&ids) {
            Some(true) => return Ok(()),
            Some(false) => return Err(format!("{0} can't be read as {0}", written.name.full)),
            None => self.known.insert(ids, true),
        };
        let fields = self.fields(written, read, depth);
        self.known.insert(ids, fields.is_ok());
        fields
    }

    /// Each field that is read was written, or has a default.
    fn fields(&mut self, written: &Record, read: &Record, depth: usize) -> Result<(), String> {
        let by_name: BTreeMap<&str, TypeId> =
            written.fields.iter().map(|field| (field.name.as_str(), field.of)).collect();
        for field in &read.fields {
            let names = std::iter::once(&field.name).chain(&field.aliases);
            let source = names.filter_map(|name| by_name.get(name.as_str())).next();
            match source {
                Some(source) => {
                    let types = self.types(*source, field.of, depth + 1);
                    types.map_err(|why| within(&field.name, &why))?;
                }
                None if field.has_default => {}
                None => {
                    let (field, record) = (&field.name, &read.name.full);
                    return Err(format!("the field {field} of {record} is not in both and has no default"));
                }
            }
        }
        Ok(())
    }
}

fn too_many() -> String {
    format!("more than {PAIRS_MAX} pairs of types have to be compared")
}

fn symbols(written: &Enumeration, read: &Enumeration) -> Result<(), String> {
    let unknown = written.symbols.iter().find(|symbol| !read.symbols.contains(*symbol));
    match unknown {
        Some(symbol) if !read.has_default => {
            Err(format!("the symbol {symbol} of {} is not in both", written.name.full))
        }
        Some(_) | None => Ok(()),
    }
}
