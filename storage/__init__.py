"""Everything that touches the disk: records, segments, the log store, identity and recovery.

==================  =========================================================================
``disk``            the narrow set of file operations; all others reach the disk through it
``failures``        operating-system errors and damage as errors of the house's tree
``statefiles``      small checksummed files that are replaced as a whole
``records``         how one record is framed, and how damage is told from a torn tail
``segments``        the files a log is made of
``spare``           the file that the next segment is made of, ready before it is needed
``reserve``         a file that is given up when the disk is full
``room``            how much is free, who is told, and what is given up
``chain``           the manifest that counts them; making a new one, deleting old ones
``standing``        where a log stands, and which of its segments are needed
``progress``        how far a long recovery has come
``recovery``        from bytes back to entries, term and vote; only reads
``admission``       what a write has to be to follow the one before it
``tail``            the end of the chain, where it is written
``log_store``       :class:`~.log_store.FileLogStore`, the ``LogStore`` port on files
``snapshot_files``  how one snapshot lies on disk
``snapshots``       :class:`~.snapshots.FileSnapshotStore`, the ``SnapshotStore`` port on files
``identity``        :class:`~.identity.DataDirectory`: who a directory belongs to, and its lock
``formatting``      making an empty directory ours
``reader``          reading a directory that is not ours to open
``checking``        reading all of one, and checking it
``backup_files``    a snapshot outside of every data directory
``restoring``       a new data directory from such a file
``forcing``         one node goes on alone, in a new incarnation
==================  =========================================================================
"""
