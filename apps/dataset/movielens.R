# Writes the 100,004 MovieLens ratings of the package dslabs as a CSV file.
#
#   Rscript movielens.R ratings.csv

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) != 1) {
  stop("usage: Rscript movielens.R ratings.csv", call. = FALSE)
}
if (!requireNamespace("dslabs", quietly = TRUE)) {
  stop("the R package dslabs is not installed; on Debian: apt-get install r-cran-dslabs",
       call. = FALSE)
}

data(movielens, package = "dslabs")
columns <- c("userId", "movieId", "title", "year", "genres", "rating", "timestamp")
# Written under another name first, so that the file is whole whenever it is there.
part <- paste0(arguments[1], ".part")
write.csv(movielens[columns], part, row.names = FALSE)
if (!file.rename(part, arguments[1])) {
  stop("could not rename ", part, call. = FALSE)
}
