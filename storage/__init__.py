"""Everything that touches the disk: records, segments, the log store, identity and recovery.

==================  =========================================================================
``disk``            the narrow set of file operations; all others reach the disk through it
``failures``        operating-system errors and damage as errors of the house's tree
``statefiles``      small checksummed files that are replaced as a whole
``records``         how one record is framed, and how damage is told from a torn tail
``segments``        the files a log is made of, and the manifest that counts them
``recovery``        from bytes back to entries, term and vote; only reads
``log_store``       :class:`~.log_store.FileLogStore`, the ``LogStore`` port on files
``identity``        :class:`~.identity.DataDirectory`: who a directory belongs to, and its lock
``reader``          reading a directory that is not ours to open
==================  =========================================================================
"""
