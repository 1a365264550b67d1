package backup

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"
)

// A file is a line that names the format, then blocks:
//
//	length:uint32  crc:uint32  kind:byte  payload of length bytes
//
// Numbers are big endian; crc is CRC-32C of kind and payload. The first block is the header (H, JSON of Header), then come those of records (R), and the
// last is the end (E, JSON of End), behind which the file is over. Records of a block follow one another:
//
//	topic:byte  partition:int32  key length:uint32  key  value length:uint32  value
//
// topic is the index in Header.Topics.
const (
	magic = "streamkeeper backup, format 1\n"

	kindHeader  = 'H'
	kindRecords = 'R'
	kindEnd     = 'E'

	blockHead  = 9
	recordHead = 1 + 4 + 4 + 4

	// blockBytes is when a block of records is closed: damage is told to within about a megabyte.
	blockBytes = 1 << 20
	// blockBytesMax bounds what is read into memory for one block: a record is at most as long as the largest batch that restore writes.
	blockBytesMax = 512 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is what a backup is of.
type Header struct {
	Version string    // of the program that made it
	Taken   time.Time // when reading began
	Cluster []string  // bootstrap addresses, for people
	Topics  []Topic   // the record log, then the topic of topology descriptions, if it was there
}

// Topic is one topic of a backup.
type Topic struct {
	Name       string
	ID         string  // topic id as Kafka's tools print it; empty where the cluster has none
	Partitions int32   //
	Ends       []int64 // by partition: what comes before this offset is in the backup
	Groups     int64   // streams groups
	Configured int64   // groups for which something is configured
	Offsets    int64   // committed offsets
	Records    int64
}

// end closes a file: what it must have had.
type end struct {
	Records []int64 // by topic
}

// Writer writes a backup under a temporary name beside its own, which it gets when it is whole.
type Writer struct {
	path    string
	file    *os.File
	out     *bufio.Writer
	block   []byte
	records []int64
}

// Create begins the file path. It must not be there yet: a backup is never written over another.
func Create(path string, h Header) (*Writer, error) {
	if _, err := os.Lstat(path); err == nil {
		return nil, fmt.Errorf("%s exists: name another file", path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".part-*")
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, file: f, out: bufio.NewWriterSize(f, blockBytes), records: make([]int64, len(h.Topics))}
	header, err := json.Marshal(h)
	if err == nil {
		_, err = w.out.WriteString(magic)
	}
	if err == nil {
		err = w.write(kindHeader, header)
	}
	if err != nil {
		w.Abandon()
		return nil, err
	}
	return w, nil
}

// Add appends a record; topic is the index in Header.Topics.
func (w *Writer) Add(topic int, partition int32, key, value []byte) error {
	if size := recordHead + len(key) + len(value); size > blockBytesMax {
		return fmt.Errorf("a record of %d bytes, at most %d can be kept", size, blockBytesMax)
	}
	if len(w.block) > 0 && len(w.block)+recordHead+len(key)+len(value) > blockBytes {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.records[topic]++
	w.block = append(w.block, byte(topic))
	w.block = binary.BigEndian.AppendUint32(w.block, uint32(partition))
	w.block = binary.BigEndian.AppendUint32(w.block, uint32(len(key)))
	w.block = append(w.block, key...)
	w.block = binary.BigEndian.AppendUint32(w.block, uint32(len(value)))
	w.block = append(w.block, value...)
	return nil
}

// Close ends the file, brings it to the disk, and gives it its name.
func (w *Writer) Close() error {
	err := w.flush()
	var last []byte
	if err == nil {
		last, err = json.Marshal(end{Records: w.records})
	}
	if err == nil {
		err = w.write(kindEnd, last)
	}
	if err == nil {
		err = w.out.Flush()
	}
	if err == nil {
		err = w.file.Sync()
	}
	if err != nil {
		w.Abandon()
		return err
	}
	if err := w.file.Close(); err != nil {
		_ = os.Remove(w.file.Name())
		return err
	}
	// Link, not Rename: it does not replace what somebody else has put there meanwhile.
	linked := os.Link(w.file.Name(), w.path)
	if err := os.Remove(w.file.Name()); err != nil && linked == nil {
		return err
	}
	if linked != nil {
		return linked
	}
	dir, err := os.Open(filepath.Dir(w.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Abandon removes what was written.
func (w *Writer) Abandon() {
	_ = w.file.Close()
	_ = os.Remove(w.file.Name())
}

func (w *Writer) flush() error {
	if len(w.block) == 0 {
		return nil
	}
	err := w.write(kindRecords, w.block)
	w.block = w.block[:0]
	return err
}

func (w *Writer) write(kind byte, payload []byte) error {
	head := make([]byte, 0, blockHead)
	head = binary.BigEndian.AppendUint32(head, uint32(len(payload)))
	head = binary.BigEndian.AppendUint32(head, sum(kind, payload))
	if _, err := w.out.Write(append(head, kind)); err != nil {
		return err
	}
	_, err := w.out.Write(payload)
	return err
}

func sum(kind byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
}
