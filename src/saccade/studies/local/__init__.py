"""Parts of the study of local structure: runs, numbers, figures."""
